"""Compares our strategy with its peers: runs missing studies, then writes the page.

    python -m benchmarks.tuning [--jobs N]
    python -m benchmarks.tuning --development [--seeds N] [--problems NAME ...]

The second form is for authors of strategies: it compares on the development problems only, keeps its results apart and
writes no page. All engines run in one environment, which is created if it does not exist.
"""

import argparse
import os
import subprocess
from pathlib import Path

from benchmarks.tuning import comparison, table
from benchmarks.tuning.running import FRESH, WORKERS, development
from tests.conformance.environments import REPOSITORY, interpreter

TRIED = FRESH.with_name("tuning-development.jsonl")


def main() -> None:
    options = _parse()
    if not options.development:
        _run("--problems", "final", "timing", "--jobs", str(options.jobs), "--results", str(options.results or FRESH))
        table.write(options.results or FRESH)
        return
    engines = options.engines or ["optuna-tpe", "optuna-gp", "trainyard"]
    problems = options.problems or [problem.name for problem in development()]
    results = options.results or TRIED
    _run(
        *("--engines", *engines, "--problems", *problems, "--modes", *options.modes),
        *("--seeds", str(options.seeds), "--jobs", str(options.jobs), "--results", str(results)),
    )
    comparison.show(results, problems=problems, engines=engines, modes=options.modes, seeds=options.seeds)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--development", action="store_true")
    parser.add_argument("--engines", nargs="+")
    parser.add_argument("--problems", nargs="+", help="names of problems for development")
    parser.add_argument("--modes", nargs="+", default=list(WORKERS), choices=list(WORKERS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--results", type=Path, help="where the lines of JSON are added")
    return parser.parse_args()


def _run(*arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1"}
    command = [str(interpreter("tuning")), "-m", "benchmarks.tuning.running", *arguments]
    subprocess.run(command, cwd=REPOSITORY, env=environment, check=True)


if __name__ == "__main__":
    main()

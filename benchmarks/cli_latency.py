"""How soon commands of the command line are done, and how large an installation is.

    python -m benchmarks.cli_latency [--rounds N] [--without-install]

The commands take turns with a bare Python, which is part of each of them. `run` is a script that prints one line, on a
yard with a warm worker, from the command to its end. Completion is that of a command, of an option and of a job's name,
as bash asks for it. An installation is made in a fresh virtual environment, without and with extras; its seconds depend
on where packages come from.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from benchmarks.measurement import Spread, in_turns, spread, write_results
from trainyard.testing.yard import RunningYard, running_yard

REPOSITORY = Path(__file__).resolve().parents[1]
TRAINYARD = Path(sys.executable).with_name("trainyard")

# Seconds, of the whole process.
GOALS = {
    "--help": 0.15,
    "ls": 0.25,
    "run of hello world": 0.5,
    "complete a command": 0.2,
    "complete an option": 0.2,
    "complete a job": 0.2,
}
EXTRAS = ("", "[debugger]", "[tuning]")
GOAL_MEGABYTES = 200.0

Measure = Callable[[], float]


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as name:
        folder = Path(name)
        with running_yard(folder / "yard") as yard:
            seconds = in_turns(_measures(yard, folder), rounds=arguments.rounds)
        installed = {} if arguments.without_install else {extra: _install(folder, extra) for extra in EXTRAS}
    spreads = {name: spread(values) for name, values in seconds.items()}
    _print(spreads, installed)
    results = {"seconds": seconds, "spreads": {name: asdict(each) for name, each in spreads.items()}}
    path = write_results("cli_latency", {**results, "installed": installed, "goals": GOALS})
    print(f"\nEvery round is in {path}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the latency of commands and the size of an installation.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--without-install", action="store_true")
    return parser.parse_args()


def _measures(yard: RunningYard, folder: Path) -> dict[str, Measure]:
    (folder / "hello.py").write_text('print("hello")\n')
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TRAINYARD_", "XDG_"))}
    environment = kept | {"HOME": str(folder), "TRAINYARD_HOME": str(yard.home.root)}

    def timed(*command: str | Path, **variables: str) -> Measure:
        def measure() -> float:
            begun = time.perf_counter()
            subprocess.run(command, cwd=folder, env=environment | variables, capture_output=True, check=True)
            return time.perf_counter() - begun

        return measure

    def completion(words: str) -> Measure:
        asked = {"_TRAINYARD_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return timed(TRAINYARD, **asked)

    measures = {
        "bare python": timed(sys.executable, "-c", "pass"),
        "--help": timed(TRAINYARD, "--help"),
        "ls": timed(TRAINYARD, "ls"),
        "run of hello world": timed(TRAINYARD, "run", "hello.py"),
        "complete a command": completion("trainyard l"),
        "complete an option": completion("trainyard run --fr"),
        "complete a job": completion("trainyard logs hel"),
    }
    # Load everything that is lazy, and leave a worker.
    for measure in (*measures.values(), measures["run of hello world"]):
        measure()
    return measures


def _install(folder: Path, extra: str) -> dict[str, float]:
    """Install the working tree in a new environment, and return the seconds and the megabytes that it took."""
    environment = folder / f"environment{extra.strip('[]')}"
    venv.create(environment, with_pip=True)
    before, begun = _megabytes(environment), time.perf_counter()
    command = [
        str(environment / "bin" / "pip"),
        "install",
        "--quiet",
        "--disable-pip-version-check",
        f"{REPOSITORY}{extra}",
    ]
    subprocess.run(command, check=True, capture_output=True)
    return {"seconds": time.perf_counter() - begun, "megabytes": _megabytes(environment) - before}


def _megabytes(folder: Path) -> float:
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*")) / 1e6


def _print(spreads: Mapping[str, Spread], installed: Mapping[str, Mapping[str, float]]) -> None:
    print(f"\n{'s until it is done':24}{'':>26}{'goal':>8}")
    for name, measured in spreads.items():
        goal = GOALS.get(name)
        verdict = "" if goal is None or measured.median <= goal else "   missed"
        print(f"{name:24}{measured!s:>26}{goal or '':>8}{verdict}")
    for extra, size in installed.items():
        aim = f"; goal {GOAL_MEGABYTES:.0f} MB" if not extra else ""
        miss = "   missed" if aim and size["megabytes"] > GOAL_MEGABYTES else ""
        name = f"trainyard{extra}"
        print(f"\n{name:24}{size['megabytes']:.0f} MB in {size['seconds']:.0f} s{aim}{miss}", end="")
    print()


if __name__ == "__main__":
    main()

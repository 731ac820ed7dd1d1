"""Mutation tests: insert small faults into the core, one at a time, and list those that no test notices.

Run by `make mutants`. Mutants that behave like the original are listed, with the reason, in equivalent.toml.
"""

import argparse
import os
import shutil
import signal
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.mutants.core import AREAS, SOURCE, Area
from scripts.mutants.operators import Mutant, mutants_of
from scripts.mutants.trials import Outcome, Slot, Trial, folder_of_copies, load_libraries, run_trials

EQUIVALENT = Path(__file__).with_name("equivalent.toml")
# Of processor time.
SHORTEST_LIMIT_S = 15.0
TIMES_THE_ORIGINAL = 3
# Total time as a multiple of processor time, on a busy machine.
MOST_WAITING = 10
MEMORY = Path("/dev/shm")
PLENTY_BYTES = 8 << 30


@dataclass(frozen=True, slots=True)
class Score:
    """How many mutants of one or several modules the tests noticed."""

    name: str
    mutants: int
    killed: int
    # Part of the killed: those that exceeded their time limit.
    late: int = 0

    @property
    def percent(self) -> float:
        return 100 * self.killed / self.mutants if self.mutants else 100.0

    def __str__(self) -> str:
        late = f", {self.late} ran for too long" if self.late else ""
        survived = self.mutants - self.killed
        return f"{self.name:52} {self.mutants:5} mutants, {survived:3} survived  {self.percent:5.1f} %{late}"


def main() -> int:
    asked = _arguments()
    areas = [area for area in AREAS if not asked.areas or area.name in asked.areas]
    equivalent = known_equivalents(EQUIVALENT.read_text())
    load_libraries()
    # Like an interrupt, so that running trials end and the copies are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    began = time.monotonic()
    with folder_of_copies(_folder()) as folder:
        slots = [Slot(folder / str(number)) for number in range(asked.workers)]
        scores = []
        for area in areas:
            of_modules = [
                _try_module(area, module, slots, equivalent, at_most=asked.sample, seed=asked.seed)
                for module in area.files()
                if asked.module in module
            ]
            scores.append(_sum(area.name, of_modules))
    print()
    total = _sum("all", scores)
    print(*scores, total, sep="\n")
    print(f"in {time.monotonic() - began:.0f} s")
    low = [score.name for score in scores if score.percent < asked.threshold]
    if low:
        print(f"Fewer than {asked.threshold} % were noticed in: {', '.join(low)}. The survivors above lack a test.")
    return 1 if low else 0


def _folder() -> Path | None:
    """Return the folder for the copies: in memory if there is enough, because disk access dominates most tests."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return None
    return MEMORY if shutil.disk_usage(MEMORY).free > PLENTY_BYTES else None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("areas", nargs="*", help=f"of {', '.join(area.name for area in AREAS)}; all when none is named")
    parser.add_argument("--sample", type=_sample, default=12, help="mutants of each module, or all (12)")
    parser.add_argument("--seed", type=int, default=0, help="draws another sample")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--threshold", type=float, default=90.0, help="the percentage that each area must reach (90)")
    parser.add_argument("--module", default="", help="only modules whose path holds this")
    return parser.parse_args()


def _sample(written: str) -> int | None:
    return None if written == "all" else int(written)


def known_equivalents(text: str) -> set[tuple[str, str, str]]:
    """Return the module, the lines before and the lines after of each mutant that behaves like the original."""
    entries = tomllib.loads(text).get("mutant", [])
    return {(f"{SOURCE}/{entry['module']}", entry["before"], entry["after"]) for entry in entries if entry["because"]}


def _try_module(
    area: Area,
    module: str,
    slots: Sequence[Slot],
    equivalent: set[tuple[str, str, str]],
    *,
    at_most: int | None,
    seed: int,
) -> Score:
    source = slots[0].source(module)
    mutants = [
        mutant
        for mutant in mutants_of(source, at_most=at_most, seed=seed)
        if (module, mutant.before, mutant.after) not in equivalent
    ]
    survivors = mutants
    late = 0
    for arguments in area.stages(module):
        if not survivors:
            break
        [(_, original)] = run_trials([_trial(module, source, arguments, processor_s=600)], slots[:1])
        if original.outcome is not Outcome.PASSED:
            print(original.output)
            sys.exit(f"The tests of {module} do not pass on the original ({original.outcome}); mend that first.")
        limit_s = max(SHORTEST_LIMIT_S, TIMES_THE_ORIGINAL * original.processor_s)
        trials = [_trial(module, mutant.source, arguments, processor_s=limit_s) for mutant in survivors]
        outcomes = {place: result.outcome for place, result in run_trials(trials, slots)}
        late += sum(outcome is Outcome.TOO_LONG for outcome in outcomes.values())
        survivors = [mutant for place, mutant in enumerate(survivors) if outcomes[place] is Outcome.PASSED]
    score = Score(module.removeprefix(f"{SOURCE}/"), len(mutants), len(mutants) - len(survivors), late)
    print(score, flush=True)
    for line in _shown(module, survivors):
        print(line, flush=True)
    return score


def _trial(module: str, source: str, arguments: tuple[str, ...], *, processor_s: float) -> Trial:
    return Trial(module, source, arguments, processor_s, limit_s=MOST_WAITING * processor_s)


def _shown(module: str, survivors: Sequence[Mutant]) -> Iterator[str]:
    for mutant in survivors:
        yield f"  {module}:{mutant.line} ({mutant.operator})"
        yield f"    - {mutant.before}"
        yield f"    + {mutant.after}"


def _sum(name: str, scores: Sequence[Score]) -> Score:
    counts = [(score.mutants, score.killed, score.late) for score in scores]
    return Score(name, *(sum(count[place] for count in counts) for place in range(3)))


if __name__ == "__main__":
    sys.exit(main())

"""The strategy process: suggests what to try next, and which trials to stop. Started by `python -m` with this name.

Questions come as lines of JSON on standard input; each gets one line of JSON on standard output. The process remembers
studies, so that a later question needs only what is new. It ends when its input ends, or when it is idle for a while.
The yard itself never loads the libraries that strategies compute with.
"""

import json
import os
import select
import sys
import time
import traceback
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from trainyard.foundation.jobs.tuning import TuningPlan, TuningTrial
from trainyard.foundation.plain import from_plain
from trainyard.insight.tuning.contract import TrialCurve
from trainyard.insight.tuning.pruning import pruner_of

IDLE_S = 120.0
# Below the priority of the tuned programs, but high enough to answer before a short one of them ends.
NICENESS = 5
MAX_STUDIES = 64  # in memory

# More threads would take processors away from the tuned programs. Libraries read these when they are loaded.
_ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM")}

Message = Mapping[str, Any]


def main() -> int:
    os.nice(NICENESS)
    os.environ.update(_ONE_THREAD)
    answers = os.fdopen(os.dup(1), "wb")
    # What a library prints must not get between the answers.
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers, idle_s=IDLE_S)
    return 0


def serve(questions: BinaryIO, answers: BinaryIO, *, idle_s: float) -> None:
    """Answer questions until the input ends or no question comes for `idle_s` seconds."""
    studies = StudyStates()
    while select.select([questions], [], [], idle_s)[0]:
        line = questions.readline()
        if not line.endswith(b"\n"):
            return
        answers.write(json.dumps(studies.answer(json.loads(line))).encode() + b"\n")
        answers.flush()


@dataclass(slots=True)
class _StudyState:
    """What is known about a study."""

    plan: TuningPlan
    parents: Mapping[str, Sequence[TuningTrial]]
    trials: dict[int, TuningTrial] = field(default_factory=dict)
    runs: dict[str, dict[int, TrialCurve]] = field(default_factory=dict)


class StudyStates:
    """The studies that were asked about most recently."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _StudyState] = OrderedDict()

    def answer(self, line: Message) -> Message:
        """Answer a question. An error is an answer too."""
        try:
            if "plan" in line:
                self._begin(line)
            if line["study"] not in self._known:
                return {"is_unknown": True}
            known = self._known[line["study"]]
            self._known.move_to_end(line["study"])
            return _check_trial(known, line) if "definition" in line else _suggest(known, line)
        except Exception:
            # The edge of the process: whatever a strategy does, the next question must be answered.
            return {"error": traceback.format_exc()}

    def _begin(self, line: Message) -> None:
        parents = {name: [from_plain(TuningTrial, each) for each in trials] for name, trials in line["parents"].items()}
        self._known[line["study"]] = _StudyState(from_plain(TuningPlan, line["plan"]), parents)
        while len(self._known) > MAX_STUDIES:
            self._known.popitem(last=False)


def _suggest(known: _StudyState, line: Message) -> Message:
    # Imported only here, because simple pruning rules need no numpy.
    from trainyard.insight.tuning.advice import advise

    started = time.process_time()
    for plain in line["trials"]:
        trial = from_plain(TuningTrial, plain)
        known.trials[trial.number] = trial
    trials = [known.trials[number] for number in sorted(known.trials)]
    advice = advise(known.plan, trials, parents=known.parents, number=line["number"])
    if advice is None:
        return {"is_exhausted": True}
    cpu_s = time.process_time() - started
    return {"definition": advice.definition, "values": dict(advice.values), "cpu_s": cpu_s}


def _check_trial(known: _StudyState, line: Message) -> Message:
    runs = known.runs.setdefault(line["definition"], {})
    for plain in line["runs"]:
        run = from_plain(TrialCurve, plain)
        runs[run.number] = run
    pruner = pruner_of(known.plan, line["definition"])
    others = [run for number, run in runs.items() if number != line["number"]]
    return {"verdict": pruner.verdict(runs[line["number"]], others) if pruner is not None else None}


if __name__ == "__main__":
    sys.exit(main())

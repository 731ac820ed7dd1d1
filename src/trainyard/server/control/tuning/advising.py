"""Answers what to try next, and which trials to end, in a process of its own: `python -m` with this module's name.

Questions come as lines of JSON on standard input, answers go as such to standard output, one for each. What was told of
a study is kept, so that a later question tells only what is new. It ends when its input does, or when nobody has asked
for a while. The yard itself never loads the libraries that strategies compute with.
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

from trainyard.foundation.plain import from_plain
from trainyard.foundation.tuning import Trial, TuningPlan
from trainyard.insight.tuning.contract import Run
from trainyard.insight.tuning.pruning import pruner_of

IDLE_S = 120.0
NICENESS = 5  # below the programs that are tuned, yet done before a short one of them is
MOST_STUDIES = 64  # that are kept in mind

Line = Mapping[str, Any]


def main() -> int:
    os.nice(NICENESS)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    serve(sys.stdin.buffer, answers, idle_s=IDLE_S)
    return 0


def serve(questions: BinaryIO, answers: BinaryIO, *, idle_s: float) -> None:
    """Answer until there are no more questions, or none has come for so long."""
    studies = Studies()
    while select.select([questions], [], [], idle_s)[0]:
        line = questions.readline()
        if not line.endswith(b"\n"):
            return
        answers.write(json.dumps(studies.answer(json.loads(line))).encode() + b"\n")
        answers.flush()


@dataclass(slots=True)
class _Known:
    """What was told of a study."""

    plan: TuningPlan
    parents: Mapping[str, Sequence[Trial]]
    trials: dict[int, Trial] = field(default_factory=dict)
    runs: dict[str, dict[int, Run]] = field(default_factory=dict)


class Studies:
    """All studies that were asked about lately."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def answer(self, line: Line) -> Line:
        """What a line asks for; an error is an answer too."""
        try:
            if "plan" in line:
                self._begin(line)
            if line["study"] not in self._known:
                return {"is_unknown": True}
            known = self._known[line["study"]]
            self._known.move_to_end(line["study"])
            return _judged(known, line) if "definition" in line else _suggested(known, line)
        except Exception:  # the edge of the process: whatever a strategy does, the next question is answered
            return {"error": traceback.format_exc()}

    def _begin(self, line: Line) -> None:
        parents = {name: [from_plain(Trial, each) for each in trials] for name, trials in line["parents"].items()}
        self._known[line["study"]] = _Known(from_plain(TuningPlan, line["plan"]), parents)
        while len(self._known) > MOST_STUDIES:
            self._known.popitem(last=False)


def _suggested(known: _Known, line: Line) -> Line:
    # Imported when it is needed: whoever only judges by simple rules needs no numpy.
    from trainyard.insight.tuning.advice import advise

    begun = time.process_time()
    for plain in line["trials"]:
        trial = from_plain(Trial, plain)
        known.trials[trial.number] = trial
    trials = [known.trials[number] for number in sorted(known.trials)]
    advice = advise(known.plan, trials, parents=known.parents, number=line["number"])
    if advice is None:
        return {"is_exhausted": True}
    cpu_s = time.process_time() - begun
    return {"definition": advice.definition, "values": dict(advice.values), "cpu_s": cpu_s}


def _judged(known: _Known, line: Line) -> Line:
    runs = known.runs.setdefault(line["definition"], {})
    for plain in line["runs"]:
        run = from_plain(Run, plain)
        runs[run.number] = run
    pruner = pruner_of(known.plan, line["definition"])
    others = [run for number, run in runs.items() if number != line["number"]]
    return {"verdict": pruner.verdict(runs[line["number"]], others) if pruner is not None else None}


if __name__ == "__main__":
    sys.exit(main())

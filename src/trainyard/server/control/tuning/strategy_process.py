"""The strategy process: suggests what to try next, and which trials to stop. Started by `python -m` with this name.

Questions come as lines of JSON on standard input; each gets one line of JSON on standard output. The process remembers
studies, so that a later question needs only what is new. It ends when its input ends, or when it is idle for a while.
The yard itself never loads the libraries that strategies compute with.
"""

import sys
import time
import traceback
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainyard.foundation.jobs.tuning import TuningPlan, TuningTrial
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.insight.tuning.contract import TrialCurve
from trainyard.insight.tuning.pruning import pruner_of
from trainyard.server.control.worker_process import Message, serve_questions

IDLE_S = 120.0
# Below the priority of the tuned programs, but high enough to answer before a short one of them ends.
NICENESS = 5
MAX_STUDIES = 64  # in memory


def main() -> int:
    serve_questions(StudyStates().answer, niceness=NICENESS, idle_s=IDLE_S)
    return 0


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
            if "survey" in line:
                return _survey(known, line)
            if "definition" in line:
                return _check_trial(known, line)
            return _explain(known, line) if line.get("explains") else _suggest(known, line)
        except Exception:
            # The edge of the process: whatever a strategy does, the next question must be answered.
            return {"error": traceback.format_exc()}

    def _begin(self, line: Message) -> None:
        parents = {name: [from_plain(TuningTrial, each) for each in trials] for name, trials in line["parents"].items()}
        self._known[line["study"]] = _StudyState(from_plain(TuningPlan, line["plan"]), parents)
        while len(self._known) > MAX_STUDIES:
            self._known.popitem(last=False)


def _learn(known: _StudyState, line: Message) -> Sequence[TuningTrial]:
    """Add the trials of a question to those that are known, and return all."""
    for plain in line["trials"]:
        trial = from_plain(TuningTrial, plain)
        known.trials[trial.number] = trial
    return [known.trials[number] for number in sorted(known.trials)]


def _suggest(known: _StudyState, line: Message) -> Message:
    # Imported only here, because simple pruning rules need no numpy.
    from trainyard.insight.tuning.advice import advise

    started = time.process_time()
    trials = _learn(known, line)
    advice = advise(known.plan, trials, parents=known.parents, number=line["number"])
    if advice is None:
        return {"is_exhausted": True}
    cpu_s = time.process_time() - started
    return {"definition": advice.definition, "values": dict(advice.values), "cpu_s": cpu_s}


def _explain(known: _StudyState, line: Message) -> Message:
    from trainyard.insight.tuning.explanation import explain_advice

    trials = _learn(known, line)
    explained = explain_advice(known.plan, trials, parents=known.parents, number=line["number"])
    return {"is_exhausted": True} if explained is None else {"explained": to_plain(explained)}


def _survey(known: _StudyState, line: Message) -> Message:
    from trainyard.insight.tuning.explanation import survey_trials

    trials, asked = _learn(known, line), line["survey"]
    names = (asked["names"][0], asked["names"][1]) if asked["names"] else None
    survey = survey_trials(known.plan, trials, definition=asked["definition"], names=names)
    return {"survey": to_plain(survey) if survey is not None else None}


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

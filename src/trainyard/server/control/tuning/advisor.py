"""Asks the strategy process what to try next and which trials to stop, with a fallback if it fails."""

import logging
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from trainyard.foundation.errors import TrainyardError, Unavailable
from trainyard.foundation.jobs.tuning import EarlyStopping, StrategyKind, TuningPlan, TuningTrial
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.insight.tuning.contract import TrialCurve
from trainyard.insight.tuning.pruning import pruner_of
from trainyard.server.control.tuning.contract import ExplainedSuggestion, Question, Suggestion
from trainyard.server.control.tuning.suggestions import suggest_at_random
from trainyard.server.control.worker_process import AnswerTimeout, WorkerProcess

log = logging.getLogger(__name__)

ANSWER_TIMEOUT = timedelta(seconds=60)  # includes the start of the process

_PROGRAM = "trainyard.server.control.tuning.strategy_process"
_MAX_STUDIES = 64
_TRIES = 2  # per question; the process is started again if it has ended


class StrategyProcess(WorkerProcess):
    """The strategy process of a yard."""

    def __init__(self, command: Sequence[str] = (sys.executable, "-m", _PROGRAM)) -> None:
        super().__init__(command, role="strategy process")


class _SentStudy:
    """What the running process knows of a study: the values that were sent, by number."""

    def __init__(self) -> None:
        self.is_begun = False
        self.trials: dict[int, TuningTrial] = {}
        self.runs: dict[tuple[str, int], TrialCurve] = {}


class _StrategyClient:
    """Asks the process, and sends only what it does not know of a study yet. Safe to share between threads."""

    def __init__(self, process: StrategyProcess, limit: timedelta) -> None:
        self._process, self._limit = process, limit
        self._sent: OrderedDict[str, _SentStudy] = OrderedDict()
        self._generation = 0
        self._lock = threading.Lock()

    def suggest(self, question: Question, **asked: Any) -> Mapping[str, Any]:
        """Ask about the next trial; `asked` are members of the message that ask for something else."""

        def make_line(sent: _SentStudy) -> dict[str, Any]:
            new = [trial for trial in question.trials if sent.trials.get(trial.number) is not trial]
            sent.trials.update({trial.number: trial for trial in new})
            return {"number": question.number, "trials": to_plain(new), **asked}

        return self._ask_with_retry(question.study, make_line, plan=question.plan, parents=question.parents)

    def check(
        self, study: str, plan: TuningPlan, *, definition: str, run: TrialCurve, others: Sequence[TrialCurve]
    ) -> Mapping[str, Any]:
        def make_line(sent: _SentStudy) -> dict[str, Any]:
            new = [each for each in (run, *others) if sent.runs.get((definition, each.number)) is not each]
            sent.runs.update({(definition, each.number): each for each in new})
            return {"definition": definition, "number": run.number, "runs": to_plain(new)}

        return self._ask_with_retry(study, make_line, plan=plan, parents={})

    def close(self) -> None:
        # Also releases a thread that waits for an answer.
        self._process.retire()
        with self._lock:
            self._process.end()

    def _ask_with_retry(
        self,
        study: str,
        make_line: Callable[[_SentStudy], dict[str, Any]],
        *,
        plan: TuningPlan,
        parents: Mapping[str, Sequence[TuningTrial]],
    ) -> Mapping[str, Any]:
        with self._lock:
            for attempt in range(1, _TRIES + 1):
                try:
                    answer = self._exchange(study, make_line, plan=plan, parents=parents)
                except Unavailable as error:
                    if attempt == _TRIES or isinstance(error, AnswerTimeout):
                        raise
                    continue
                if not answer.get("is_unknown"):
                    return answer
                del self._sent[study]
            raise Unavailable("The strategy process has lost the data of this tuning job.")

    def _exchange(
        self,
        study: str,
        make_line: Callable[[_SentStudy], dict[str, Any]],
        *,
        plan: TuningPlan,
        parents: Mapping[str, Sequence[TuningTrial]],
    ) -> Mapping[str, Any]:
        self._process.begin()
        sent = self._sent_to(study)
        content = make_line(sent)
        if not sent.is_begun:
            content |= {"plan": to_plain(plan), "parents": to_plain(parents)}
            sent.is_begun = True
        return self._process.ask({"study": study, **content}, self._limit)

    def _sent_to(self, study: str) -> _SentStudy:
        if self._generation != self._process.generation:
            self._sent.clear()
            self._generation = self._process.generation
        sent = self._sent.setdefault(study, _SentStudy())
        self._sent.move_to_end(study)
        while len(self._sent) > _MAX_STUDIES:
            self._sent.popitem(last=False)
        return sent


class ProcessAdvisor:
    """The Advisor of a yard. Its process starts with the first question, ends when idle, and starts again."""

    def __init__(self, process: StrategyProcess | None = None, *, limit: timedelta = ANSWER_TIMEOUT) -> None:
        self._client = _StrategyClient(process or StrategyProcess(), limit)

    def suggest(self, question: Question) -> Suggestion | None:
        try:
            answer = self._client.suggest(question)
        except Unavailable as error:
            return self._fall_back(question, error.message)
        if "error" in answer:
            return self._fall_back(question, answer["error"])
        if answer.get("is_exhausted"):
            return None
        return Suggestion(answer["definition"], answer["values"], answer["cpu_s"])

    def close(self) -> None:
        self._client.close()

    def _fall_back(self, question: Question, why: str) -> Suggestion:
        if question.plan.strategy is StrategyKind.GRID:
            raise Unavailable(f"The next combination of the grid cannot be computed now: {why}")
        log.warning("a trial is chosen at random", extra={"id": question.study, "why": why})
        return suggest_at_random(question.plan, question.number)


class ProcessPruner:
    """The TrialPruner of a yard. Simple rules are evaluated here, costly ones in the strategy process."""

    def __init__(self, process: StrategyProcess | None = None, *, limit: timedelta = ANSWER_TIMEOUT) -> None:
        self._client = _StrategyClient(process or StrategyProcess(), limit)

    def stop_reason(
        self, study: str, plan: TuningPlan, *, definition: str, run: TrialCurve, others: Sequence[TrialCurve]
    ) -> str | None:
        if plan.strategy is StrategyKind.HYPERBAND or plan.early_stopping is not EarlyStopping.CURVE:
            pruner = pruner_of(plan, definition)
            return pruner.verdict(run, others) if pruner is not None else None
        try:
            answer = self._client.check(study, plan, definition=definition, run=run, others=others)
        except TrainyardError as error:
            answer = {"error": error.message}
        if "error" in answer:
            log.warning(
                "a trial was not checked for early stopping",
                extra={"id": study, "number": run.number, "why": answer["error"]},
            )
        reason: str | None = answer.get("verdict")
        return reason

    def close(self) -> None:
        self._client.close()


class ProcessAnalyst:
    """Answers users' questions about a search. It has a process of its own, so that no trial waits for them."""

    def __init__(self, process: StrategyProcess | None = None, *, limit: timedelta = ANSWER_TIMEOUT) -> None:
        self._client = _StrategyClient(process or StrategyProcess(), limit)

    def explain(self, question: Question) -> ExplainedSuggestion | None:
        """Return what the strategy would try next, and why; None when nothing is left to try.

        Unavailable if the process cannot answer.
        """
        answer = self._ask(question, explains=True)
        return from_plain(ExplainedSuggestion, answer["explained"]) if "explained" in answer else None

    def survey(self, question: Question, *, definition: str, names: Sequence[str] = ()) -> Mapping[str, Any] | None:
        """Return a Survey of `insight.tuning.explanation` as plain JSON; None if there are too few trials."""
        answer = self._ask(question, survey={"definition": definition, "names": list(names)})
        found: Mapping[str, Any] | None = answer["survey"]
        return found

    def close(self) -> None:
        self._client.close()

    def _ask(self, question: Question, **asked: Any) -> Mapping[str, Any]:
        answer = self._client.suggest(question, **asked)
        if "error" in answer:
            log.warning("a question about a search failed", extra={"id": question.study, "why": answer["error"]})
            raise Unavailable(f"The search could not be explained: {answer['error'].strip().splitlines()[-1]}")
        return answer

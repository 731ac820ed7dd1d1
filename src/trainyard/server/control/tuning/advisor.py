"""Asks the strategy process what to try next and which trials to stop, with a fallback if it fails."""

import contextlib
import json
import logging
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from trainyard.foundation.errors import TrainyardError, Unavailable
from trainyard.foundation.jobs.tuning import EarlyStopping, StrategyKind, TuningPlan, TuningTrial
from trainyard.foundation.plain import to_plain
from trainyard.insight.tuning.contract import TrialCurve
from trainyard.insight.tuning.pruning import pruner_of
from trainyard.server.control.tuning.contract import Question, Suggestion
from trainyard.server.control.tuning.suggestions import suggest_at_random

log = logging.getLogger(__name__)

ANSWER_TIMEOUT = timedelta(seconds=60)  # includes the start of the process

_PROGRAM = "trainyard.server.control.tuning.strategy_process"
_MAX_STUDIES = 64
_TRIES = 2  # per question; the process is started again if it has ended


class _AnswerTimeout(Unavailable):
    """There was no answer in time. Another try would take as long."""


class StrategyProcess:
    """The strategy process: started for the first question, and again after it ended. One thread at a time may ask.

    `generation` counts the starts. A new process knows nothing of what an earlier one was sent.
    """

    def __init__(self, command: Sequence[str] = (sys.executable, "-m", _PROGRAM)) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._is_retired = False
        self.generation = 0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def begin(self) -> None:
        """Start the process if it does not run."""
        if self._is_retired:
            raise Unavailable("The yard is closing.")
        if self._process is not None and self._process.poll() is None:
            return
        self.end()
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise Unavailable(f"{self._command[0]} cannot be started: {error.strerror}.") from error
        self.generation += 1
        # Reaps a process that ends by itself, without waiting for the next question.
        threading.Thread(target=self._process.wait, name="advisor", daemon=True).start()

    def ask(self, line: Mapping[str, Any], limit: timedelta) -> Mapping[str, Any]:
        """Send a question and return the answer. Unavailable if the process has died or takes too long."""
        process = self._process
        assert process is not None, "begin comes first"
        assert process.stdin is not None, "it has pipes"
        assert process.stdout is not None, "it has pipes"
        # Also ends a write that nobody reads.
        cut = threading.Timer(limit.total_seconds(), process.kill)
        cut.daemon = True
        cut.start()
        try:
            process.stdin.write(json.dumps(line).encode() + b"\n")
            process.stdin.flush()
            answer: Mapping[str, Any] = json.loads(process.stdout.readline())
        except (OSError, ValueError) as error:
            is_late = not cut.is_alive()
            self.end()
            if is_late:
                raise _AnswerTimeout(f"The strategy took longer than {limit.total_seconds():g} s.") from error
            raise Unavailable("The strategy process ended without an answer.") from error
        finally:
            cut.cancel()
        return answer

    def retire(self) -> None:
        """Kill the process for good. May be called while another thread asks it."""
        self._is_retired, process = True, self._process
        if process is not None:
            process.kill()

    def end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        # Closing tries once more to write what the process did not read.
        with contextlib.suppress(OSError), process:
            process.wait()


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

    def suggest(self, question: Question) -> Mapping[str, Any]:
        def make_line(sent: _SentStudy) -> dict[str, Any]:
            new = [trial for trial in question.trials if sent.trials.get(trial.number) is not trial]
            sent.trials.update({trial.number: trial for trial in new})
            return {"number": question.number, "trials": to_plain(new)}

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
                    if attempt == _TRIES or isinstance(error, _AnswerTimeout):
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

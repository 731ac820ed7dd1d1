"""Asks a process of its own what to try next and which trials to end, and does without it where that fails."""

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from trainyard.foundation.errors import TrainyardError, Unavailable
from trainyard.foundation.plain import to_plain
from trainyard.foundation.tuning import EarlyStopping, StrategyKind, Trial, TuningPlan
from trainyard.insight.tuning.contract import Run
from trainyard.insight.tuning.pruning import pruner_of
from trainyard.server.control.tuning.chance import by_chance
from trainyard.server.control.tuning.contract import Question, Suggestion

log = logging.getLogger(__name__)

LIMIT = timedelta(seconds=60)  # for one answer, the start of the process included

_PROGRAM = "trainyard.server.control.tuning.advising"
# More threads than one would be taken from the programs that are tuned.
_ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM")}
_MOST_STUDIES = 64
_TRIES = 2  # a process that ended is started again once for a question


class _TooSlow(Unavailable):
    """There was no answer in time; another try would take as long."""


class AdvisingProcess:
    """The child: started at the first line, and again after it ended. One line at a time is its caller's affair.

    `generation` counts the starts: what an earlier child was told is forgotten.
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
        """Have a child that can be asked."""
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
                env={**os.environ, **_ONE_THREAD},
                start_new_session=True,
            )
        except OSError as error:
            raise Unavailable(f"{self._command[0]} cannot be started: {error.strerror}.") from error
        self.generation += 1
        # One that ends by itself does not have to wait for the next question until it is gone.
        threading.Thread(target=self._process.wait, name="advisor", daemon=True).start()

    def ask(self, line: Mapping[str, Any], limit: timedelta) -> Mapping[str, Any]:
        """The answer to a line; Unavailable when the child has died or takes too long, and is then ended."""
        process = self._process
        assert process is not None, "begin comes first"
        assert process.stdin is not None, "it has pipes"
        assert process.stdout is not None, "it has pipes"
        cut = threading.Timer(limit.total_seconds(), process.kill)  # ends a write that nobody reads, too
        cut.daemon = True
        cut.start()
        try:
            process.stdin.write(json.dumps(line).encode() + b"\n")
            process.stdin.flush()
            answer: Mapping[str, Any] = json.loads(process.stdout.readline())
        except (OSError, ValueError) as error:  # nothing is no JSON either
            is_late = not cut.is_alive()
            self.end()
            if is_late:
                raise _TooSlow(f"The strategy took longer than {limit.total_seconds():g} s.") from error
            raise Unavailable("The process of the strategies has ended without an answer.") from error
        finally:
            cut.cancel()
        return answer

    def retire(self) -> None:
        """Kill the child, and start no other; may be called while it is asked."""
        self._is_retired, process = True, self._process
        if process is not None:
            process.kill()

    def end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        with contextlib.suppress(OSError), process:  # closing tries once more to write what it did not take
            process.wait()


class _Told:
    """What the present child knows of a study: the very values that were sent, by their numbers."""

    def __init__(self) -> None:
        self.is_begun = False
        self.trials: dict[int, Trial] = {}
        self.runs: dict[tuple[str, int], Run] = {}


class _Conversation:
    """Lines to one child, each telling of a study only what the child does not know. Safe to share between threads."""

    def __init__(self, process: AdvisingProcess, limit: timedelta) -> None:
        self._process, self._limit = process, limit
        self._told: OrderedDict[str, _Told] = OrderedDict()
        self._generation = 0
        self._lock = threading.Lock()

    def suggest(self, question: Question) -> Mapping[str, Any]:
        def line(told: _Told) -> dict[str, Any]:
            news = [trial for trial in question.trials if told.trials.get(trial.number) is not trial]
            told.trials.update({trial.number: trial for trial in news})
            return {"number": question.number, "trials": to_plain(news)}

        return self._asked(question.study, line, plan=question.plan, parents=question.parents)

    def judge(
        self, study: str, plan: TuningPlan, *, definition: str, run: Run, others: Sequence[Run]
    ) -> Mapping[str, Any]:
        def line(told: _Told) -> dict[str, Any]:
            news = [each for each in (run, *others) if told.runs.get((definition, each.number)) is not each]
            told.runs.update({(definition, each.number): each for each in news})
            return {"definition": definition, "number": run.number, "runs": to_plain(news)}

        return self._asked(study, line, plan=plan, parents={})

    def close(self) -> None:
        self._process.retire()  # which also lets go whoever waits for an answer
        with self._lock:
            self._process.end()

    def _asked(
        self,
        study: str,
        line: Callable[[_Told], dict[str, Any]],
        *,
        plan: TuningPlan,
        parents: Mapping[str, Sequence[Trial]],
    ) -> Mapping[str, Any]:
        with self._lock:
            for attempt in range(1, _TRIES + 1):
                try:
                    answer = self._exchanged(study, line, plan=plan, parents=parents)
                except Unavailable as error:
                    if attempt == _TRIES or isinstance(error, _TooSlow):
                        raise
                    continue
                if not answer.get("is_unknown"):
                    return answer
                del self._told[study]
            raise Unavailable("The process of the strategies has forgotten what it was told.")

    def _exchanged(
        self,
        study: str,
        line: Callable[[_Told], dict[str, Any]],
        *,
        plan: TuningPlan,
        parents: Mapping[str, Sequence[Trial]],
    ) -> Mapping[str, Any]:
        self._process.begin()
        told = self._told_of(study)
        words = line(told)
        if not told.is_begun:
            words |= {"plan": to_plain(plan), "parents": to_plain(parents)}
            told.is_begun = True
        return self._process.ask({"study": study, **words}, self._limit)

    def _told_of(self, study: str) -> _Told:
        if self._generation != self._process.generation:
            self._told.clear()
            self._generation = self._process.generation
        told = self._told.setdefault(study, _Told())
        self._told.move_to_end(study)
        while len(self._told) > _MOST_STUDIES:
            self._told.popitem(last=False)
        return told


class ProcessAdvisor:
    """The Advisor of a yard. Its process is started at the first question, ends when idle, and starts again."""

    def __init__(self, process: AdvisingProcess | None = None, *, limit: timedelta = LIMIT) -> None:
        self._conversation = _Conversation(process or AdvisingProcess(), limit)

    def suggest(self, question: Question) -> Suggestion | None:
        try:
            answer = self._conversation.suggest(question)
        except Unavailable as error:
            return self._without(question, error.message)
        if "error" in answer:
            return self._without(question, answer["error"])
        if answer.get("is_exhausted"):
            return None
        return Suggestion(answer["definition"], answer["values"], answer["cpu_s"])

    def close(self) -> None:
        self._conversation.close()

    def _without(self, question: Question, why: str) -> Suggestion:
        if question.plan.strategy is StrategyKind.GRID:
            raise Unavailable(f"The next combination of the grid is not known now: {why}")
        log.warning("a trial is chosen by chance", extra={"id": question.study, "why": why})
        return by_chance(question.plan, question.number)


class PrunerJudge:
    """The Judge of a yard: simple rules at once, those that compute in a process of their own."""

    def __init__(self, process: AdvisingProcess | None = None, *, limit: timedelta = LIMIT) -> None:
        self._conversation = _Conversation(process or AdvisingProcess(), limit)

    def verdict(self, study: str, plan: TuningPlan, *, definition: str, run: Run, others: Sequence[Run]) -> str | None:
        if plan.strategy is StrategyKind.HYPERBAND or plan.early_stopping is not EarlyStopping.CURVE:
            pruner = pruner_of(plan, definition)
            return pruner.verdict(run, others) if pruner is not None else None
        try:
            answer = self._conversation.judge(study, plan, definition=definition, run=run, others=others)
        except TrainyardError as error:
            answer = {"error": error.message}
        if "error" in answer:
            log.warning("a trial was not judged", extra={"id": study, "number": run.number, "why": answer["error"]})
        verdict: str | None = answer.get("verdict")
        return verdict

    def close(self) -> None:
        self._conversation.close()

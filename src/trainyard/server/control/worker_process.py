"""A process beside the yard that answers questions, one at a time. It computes what must neither delay nor harm a yard.

A question is a line of JSON on its standard input, an answer one on its standard output.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import IO, Any, BinaryIO, TypeVar

from trainyard.foundation.errors import Unavailable

Message = Mapping[str, Any]
Told = TypeVar("Told")

_SECRET_PREFIXES = ("AWS_", "TRAINYARD_")
# More threads would take processors away from jobs. Libraries read these when they are loaded.
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM")}


class AnswerTimeout(Unavailable):
    """There was no answer in time. Another try would take as long."""


class WorkerWasIdle(Unavailable):
    """The process had ended because it was idle, just as the question came. Another try starts it again."""


class ShortQueue:
    """Lets one thread at a time use a process. Few may wait, and not long, because other callers need their threads."""

    def __init__(self, *, max_waiting: int, max_wait_s: float, busy: str) -> None:
        self._max_wait_s, self._busy = max_wait_s, busy
        self._lock, self._waiting = threading.RLock(), threading.BoundedSemaphore(max_waiting)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the turn of the calling thread. Unavailable, with the text `busy`, if too many wait or too long."""
        if not self._waiting.acquire(blocking=False):
            raise Unavailable(self._busy)
        try:
            if not self._lock.acquire(timeout=self._max_wait_s):
                raise Unavailable(self._busy)
            try:
                yield
            finally:
                self._lock.release()
        finally:
            self._waiting.release()

    @contextlib.contextmanager
    def patient_turn(self) -> Iterator[None]:
        """Wait as long as it takes. A thread that has its turn may ask for it again."""
        with self._lock:
            yield


class RecentFailures:
    """Remembers what has just ended the process, which it would do again. One thread at a time may use this."""

    def __init__(self, *, rest_s: float, most: int = 100) -> None:
        self._rest_s, self._most = rest_s, most
        self._failed_at: dict[str, float] = {}

    def has(self, key: str) -> bool:
        """Whether something failed so lately that another try makes no sense."""
        failed_at = self._failed_at.get(key)
        return failed_at is not None and time.monotonic() - failed_at < self._rest_s

    def add(self, key: str) -> None:
        self._failed_at[key] = time.monotonic()
        while len(self._failed_at) > self._most:
            del self._failed_at[next(iter(self._failed_at))]


class WorkerProcess:
    """A process that is started for the first question, and again after it ended. One thread at a time may ask.

    `generation` counts the starts: a new process knows nothing of what an earlier one was sent. `role` names the
    process in errors, such as "strategy process". The process does not get the secrets of the yard's environment.
    """

    def __init__(self, command: Sequence[str], *, role: str) -> None:
        self._command, self._role = command, role
        self._process: subprocess.Popen[bytes] | None = None
        self._is_retired = False
        self.generation = 0

    @property
    def is_retired(self) -> bool:
        return self._is_retired

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
                env={name: value for name, value in os.environ.items() if not name.startswith(_SECRET_PREFIXES)},
            )
        except OSError as error:
            raise Unavailable(f"{self._command[0]} cannot be started: {error.strerror}.") from error
        self.generation += 1
        # Reaps a process that ends by itself, without waiting for the next question.
        threading.Thread(target=self._process.wait, name="worker", daemon=True).start()

    def ask(self, line: Message, limit: timedelta) -> Message:
        """Send a question and return the answer. Unavailable if the process has died or takes too long."""

        def talk(questions: IO[bytes], answers: IO[bytes]) -> Message:
            questions.write(json.dumps(line).encode() + b"\n")
            questions.flush()
            answer: Message = json.loads(answers.readline())
            return answer

        return self.converse(talk, limit)

    def converse(self, talk: Callable[[IO[bytes], IO[bytes]], Told], limit: timedelta) -> Told:
        """Call `talk` with the input and the output of the process, and return what it returns.

        Unavailable if the process has died or takes too long, of which `talk` learns by an OSError or a ValueError. The
        process is killed then, and also if `talk` raises anything else, because the conversation was cut off.
        """
        process = self._process
        assert process is not None, "begin comes first"
        assert process.stdin is not None, "it has pipes"
        assert process.stdout is not None, "it has pipes"
        # Also ends a write that nobody reads.
        cut = threading.Timer(limit.total_seconds(), process.kill)
        cut.daemon = True
        cut.start()
        try:
            return talk(process.stdin, process.stdout)
        except (OSError, ValueError) as error:
            is_late = not cut.is_alive()
            self.end()
            if is_late:
                raise AnswerTimeout(f"The {self._role} took longer than {limit.total_seconds():g} s.") from error
            if process.returncode == 0:
                raise WorkerWasIdle(f"The {self._role} had just ended.") from error
            raise Unavailable(f"The {self._role} ended without an answer.") from error
        except BaseException:
            self.end()
            raise
        finally:
            cut.cancel()

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


def serve_questions(answer: Callable[[Message], Message], *, niceness: int, idle_s: float) -> None:
    """Answer the questions to this process with a low priority and one thread, until its input ends or it is idle."""
    os.nice(niceness)
    os.environ.update(ONE_THREAD)
    answers = os.fdopen(os.dup(1), "wb")
    # What a library prints must not get between the answers.
    os.dup2(2, 1)
    answer_lines(answer, sys.stdin.buffer, answers, idle_s=idle_s)


def answer_lines(
    answer: Callable[[Message], Message], questions: BinaryIO, answers: BinaryIO, *, idle_s: float
) -> None:
    """Answer questions until the input ends or no question comes for `idle_s` seconds."""
    while select.select([questions], [], [], idle_s)[0]:
        line = questions.readline()
        if not line.endswith(b"\n"):
            return
        answers.write(json.dumps(answer(json.loads(line))).encode() + b"\n")
        answers.flush()

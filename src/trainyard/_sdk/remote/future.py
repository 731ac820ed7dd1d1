"""The result of a call that a job runs."""

import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any, Self

from trainyard._sdk.remote.program import KEY_VARIABLE, RESULT, sign
from trainyard._sdk.training.job import TrainingJobHandle, require_no_failure
from trainyard._sdk.training.stream import FINAL
from trainyard.exceptions import UnexpectedStatusException
from trainyard.foundation.errors import Corrupt, InvalidRequest
from trainyard.foundation.locations import parse_s3_uri
from trainyard.session import Session
from trainyard.wire.client import CallFailed

_SIGNATURE_BYTES = 32


class RemoteTraceback(Exception):
    """The traceback of a function that has failed in a job; the cause of the exception that the caller gets."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


@dataclass(frozen=True, slots=True)
class RunningCall:
    """The job of a call, where its result will be, and the key that signs it."""

    session: Session
    job_name: str
    results: str
    key: str

    @property
    def job(self) -> TrainingJobHandle:
        return TrainingJobHandle(self.session.api, self.job_name)

    def result(self, *, logs: bool = False) -> Any:
        """Wait for the job; return what the function returned, or raise what it raised."""
        if logs:
            try:
                self.job.wait()
            except UnexpectedStatusException:
                # The function's own exception says more.
                return self._outcome()
        else:
            self.job.wait_for_end()
        return self._outcome()

    def _outcome(self) -> Any:
        content = self._read_result()
        if content is None:
            description = self.job.describe()
            require_no_failure(description, self.job.details())
            status = description["TrainingJobStatus"]
            message = f'Training job "{self.job_name}" is {status} and has left no result.'
            raise UnexpectedStatusException(message, ("Completed",), status)
        outcome = pickle.loads(content)
        if "result" in outcome:
            return pickle.loads(outcome["result"])
        error = pickle.loads(outcome["error"])
        raise error from RemoteTraceback(outcome["traceback"])

    def _read_result(self) -> bytes | None:
        """Return the signed content of the result; None if there is none."""
        location = parse_s3_uri(f"{self.results}/{RESULT}", account="")
        try:
            where = {"Bucket": location.bucket.name, "Key": location.key}
            body: bytes = self.session.api.call("s3", "GetObject", **where)["Body"]
        except CallFailed as error:
            if error.status == 404:
                return None
            raise
        signature, content = body[:_SIGNATURE_BYTES], body[_SIGNATURE_BYTES:]
        # Unpickling runs code: of this job only, and not of whoever can write to the bucket.
        if not compare_digest(signature, sign(content, self.key)):
            raise Corrupt(f"{self.results}/{RESULT} was not written by the job {self.job_name}; it is not read.")
        return content


class Future:
    """The result of a call that runs as a job, or that waits until one may start. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_begun, self._is_cancelled = threading.Event(), False
        self._call: RunningCall | None = None
        self._error: BaseException | None = None

    @classmethod
    def of_job(cls, job_name: str, session: Session) -> Self:
        """Return the future of a job that exists. Raises InvalidRequest if it does not run a function.

        Args:
            job_name: Name of the job.
            session: The session to use.
        """
        description = TrainingJobHandle(session.api, job_name).describe()
        key = description.get("Environment", {}).get(KEY_VARIABLE)
        results = description.get("CheckpointConfig", {}).get("S3Uri")
        if not key or not results:
            raise InvalidRequest(f'Training job "{job_name}" does not run a function of trainyard.remote_function.')
        future = cls()
        future.begin(lambda: RunningCall(session, job_name, results, key))
        return future

    def begin(self, start: Callable[[], RunningCall]) -> bool:
        """Start the job, unless the future is cancelled. Return whether it runs.

        Args:
            start: Creates the job.
        """
        with self._lock:
            if self._is_cancelled:
                return False
            try:
                self._call = start()
            # The caller gets it from `result`.
            except Exception as error:
                self._error = error
            self._has_begun.set()
            return self._error is None

    @property
    def job_name(self) -> str | None:
        """The name of the job; None while it waits to start."""
        return self._call.job_name if self._call else None

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the job, and return what the function returned, or raise what it raised.

        Args:
            timeout: How many seconds to wait for the job to start. Default: any time.

        Raises:
            TimeoutError: The job has not started.
            InvalidRequest: The future was cancelled before its job started.
        """
        return self._wait_for_start(timeout).result()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the job, and return what the function raised; None if it returned.

        Args:
            timeout: How many seconds to wait for the job to start. Default: any time.
        """
        call = self._wait_for_start(timeout)
        try:
            call.result()
        except Exception as error:
            return error
        return None

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the job to end, without raising what the function raised.

        Args:
            timeout: How many seconds to wait for the job to start. Default: any time.
        """
        self._wait_for_start(timeout).job.wait_for_end()

    def done(self) -> bool:
        """Return whether the job has ended."""
        return self._error is not None or self._is_cancelled or self._status() in FINAL

    def running(self) -> bool:
        """Return whether the job exists and has not ended."""
        return self._call is not None and self._status() not in FINAL

    def cancelled(self) -> bool:
        """Return whether `cancel` has stopped the call."""
        return self._is_cancelled

    def cancel(self) -> bool:
        """Stop the job, or never start it. Return False if it has ended already."""
        with self._lock:
            if self._call is None and self._error is None:
                self._is_cancelled = True
                self._has_begun.set()
                return True
        if self.done():
            return False
        assert self._call is not None, "a call that is not done runs"
        self._call.job.stop()
        self._is_cancelled = True
        return True

    def _wait_for_start(self, timeout: float | None) -> RunningCall:
        if not self._has_begun.wait(timeout):
            raise TimeoutError(f"The job has not started within {timeout:g} s.")
        if self._error is not None:
            raise self._error
        if self._call is None:
            raise InvalidRequest("The call was cancelled before its job started.")
        return self._call

    def _status(self) -> str:
        return str(self._call.job.describe()["TrainingJobStatus"]) if self._call else ""

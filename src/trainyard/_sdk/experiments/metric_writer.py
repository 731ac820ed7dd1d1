"""Sends the metrics of a run in the background, so that logging one takes a microsecond."""

import threading
import time
import warnings
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from trainyard.foundation.errors import TrainyardError, Unavailable

if TYPE_CHECKING:
    from trainyard._sdk.connection import Api

# The limit of BatchPutMetrics.
_PER_CALL = 10
# How long metrics are collected before they are sent.
_INTERVAL_S = 1.0
_RETRIES, _RETRY_S = 5, 1.0
# A call is answered while others wait for the network. Each metric has one sender, so that its values stay in order:
# times have whole seconds on the way, so the yard takes the value that comes last for the last one.
_SENDERS = 4


class MetricWriter:
    """The metrics of one trial component. Any thread may add some; `close` returns when all were sent."""

    def __init__(self, api: "Api", component: str) -> None:
        self._api, self._component = api, component
        # One queue for each sender.
        self._waiting: list[deque[dict[str, Any]]] = [deque() for _ in range(_SENDERS)]
        self._wake = threading.Event()
        self._is_closing = False
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def add(self, name: str, value: float, *, step: int | None, at: datetime | None) -> None:
        """Add a value, to be sent soon."""
        datum: dict[str, Any] = {"MetricName": name, "Value": float(value), "Timestamp": at or datetime.now(UTC)}
        if step is not None:
            datum["Step"] = int(step)
        self._waiting[hash(name) % _SENDERS].append(datum)
        if not self._threads:
            self._start()

    def close(self) -> None:
        """Send what waits, and return when it was sent."""
        self._is_closing = True
        self._wake.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        # What was added since then.
        for waiting in self._waiting:
            while batch := self._take(waiting):
                self._send(batch)
        self._is_closing = False
        self._wake.clear()

    def _start(self) -> None:
        with self._lock:
            for waiting in self._waiting[len(self._threads) :]:
                thread = threading.Thread(target=self._run, args=(waiting,), name="trainyard-metrics", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _run(self, waiting: deque[dict[str, Any]]) -> None:
        while True:
            self._wake.wait(_INTERVAL_S)
            while batch := self._take(waiting):
                self._send(batch)
            if self._is_closing:
                return

    def _take(self, waiting: deque[dict[str, Any]]) -> list[dict[str, Any]]:
        with self._lock:
            return [waiting.popleft() for _ in range(min(_PER_CALL, len(waiting)))]

    def _send(self, batch: list[dict[str, Any]]) -> None:
        for number in range(_RETRIES + 1):
            try:
                answer = self._api.call(
                    "sagemaker-metrics", "BatchPutMetrics", TrialComponentName=self._component, MetricData=batch
                )
            except Unavailable as error:
                if number < _RETRIES:
                    time.sleep(_RETRY_S)
                    continue
                self._warn(batch, error.message)
            except TrainyardError as error:
                self._warn(batch, error.message)
            else:
                for refused in answer.get("Errors", ()):
                    self._warn([batch[refused["MetricIndex"]]], str(refused["Code"]))
            return

    def _warn(self, batch: list[dict[str, Any]], why: str) -> None:
        names = ", ".join(sorted({str(datum["MetricName"]) for datum in batch}))
        warnings.warn(
            f"{len(batch)} values of {names} were not stored in the run {self._component}: {why}", stacklevel=2
        )

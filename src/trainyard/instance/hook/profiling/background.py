"""Writes profiles in a thread of its own, so that the training does not wait for a disk."""

import threading
from collections import deque
from collections.abc import Callable

# Profiles that wait are in memory.
_MAX_WAITING = 32
_END_S = 120.0

Task = Callable[[], None]


class BackgroundWriter:
    """Runs tasks one after the other. The thread exists only while there are any.

    `on_error` gets what a task raised. Tasks that come too fast are dropped and counted.
    """

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self._on_error = on_error
        self._tasks: deque[Task] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def submit(self, task: Task) -> None:
        with self._lock:
            if len(self._tasks) >= _MAX_WAITING:
                self.dropped += 1
                return
            self._tasks.append(task)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="profiles", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError:
                    # The interpreter is shutting down; `close` runs the task.
                    self._thread = None

    def close(self) -> None:
        """Wait for the tasks, and run in this thread what is left."""
        thread = self._thread
        if thread is not None:
            thread.join(_END_S)
            if thread.is_alive():
                return
        self._run()

    def forget(self) -> None:
        """Drop everything, in a forked child that has no such thread."""
        self._tasks.clear()
        self._lock = threading.Lock()
        self._thread = None

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._tasks:
                    self._thread = None
                    return
                task = self._tasks[0]
            try:
                task()
            except Exception as error:
                self._on_error(error)
            with self._lock:
                self._tasks.popleft()

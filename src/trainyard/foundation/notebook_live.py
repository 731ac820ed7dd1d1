"""Keeps what a notebook shows up to date while something runs.

A thread replaces the output of the cell, so it works in every notebook that runs a Jupyter kernel, such as Jupyter and
VS Code: without widgets, without a network, and without a connection from the browser to the yard. What was shown last
is saved with the notebook.
"""

import itertools
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from trainyard.foundation.errors import TrainyardError
from trainyard.foundation.notebook_html import note

PAUSE_S = 2.0
# What has not changed for long is looked at less often.
MAX_PAUSE_S = 30.0
# People run a cell many times. More outputs than this are not followed; the oldest stops first.
MAX_FOLLOWED = 8
THREAD_NAME = "trainyard-notebook"

_numbers = itertools.count()
_followed: deque["_Follower"] = deque()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class View:
    """What a notebook shows at one moment. A final view will not change any more."""

    html: str
    text: str
    is_final: bool


def show_live(look: Callable[[], View]) -> None:
    """Show a view in the output of the cell, and follow it in a thread until it is final.

    `look` is called in this thread first and then, one call at a time, in another. If the first call fails, only why is
    shown. For `_ipython_display_`: raises NotImplementedError outside a notebook, and the object is then shown as any
    other.
    """
    if not _is_notebook():
        raise NotImplementedError
    try:
        view = look()
    except TrainyardError as error:
        # IPython would show its traceback, try the other methods of the object, and show theirs of the same error.
        text = f"This cannot be shown: {error}"
        view = View(note(text), text, is_final=True)
    follower = _Follower(look, view, f"trainyard-{os.getpid()}-{next(_numbers)}")
    follower.publish(view.html if view.is_final else view.html + _LIVE, is_first=True)
    if view.is_final:
        return
    with _lock:
        _followed.append(follower)
        surplus = _followed.popleft() if len(_followed) > MAX_FOLLOWED else None
    if surplus is not None:
        surplus.stop.set()
    threading.Thread(target=follower.run, name=THREAD_NAME, daemon=True).start()


class _Follower:
    """Replaces one output whenever its view has changed."""

    def __init__(self, look: Callable[[], View], view: View, display_id: str) -> None:
        self._look, self._view, self._id = look, view, display_id
        self.stop = threading.Event()

    def run(self) -> None:
        pause_s = PAUSE_S
        while not self.stop.wait(pause_s):
            try:
                view = self._look()
            except TrainyardError as error:
                # A yard that restarts answers again soon.
                pause_s = min(2 * pause_s, MAX_PAUSE_S)
                self.publish(self._view.html + note(f"Not up to date: {error}"))
                continue
            except Exception as error:
                # A thread has nobody else to tell.
                self._end(f"This view is not updated any more: {error!r}")
                return
            pause_s = PAUSE_S if view != self._view else min(2 * pause_s, MAX_PAUSE_S)
            self._view = view
            if view.is_final:
                self._end("")
                return
            self.publish(view.html + _LIVE)
        self._end("This view is not updated any more, because newer ones are. Run the cell again to follow this one.")

    def publish(self, html: str, *, is_first: bool = False) -> None:
        bundle = {"text/html": html, "text/plain": self._view.text}
        display = import_module("IPython.display")
        if is_first:
            display.display(bundle, raw=True, display_id=self._id)
        else:
            display.update_display(bundle, raw=True, display_id=self._id)

    def _end(self, text: str) -> None:
        self.publish(self._view.html + (note(text) if text else ""))
        with _lock:
            if self in _followed:
                _followed.remove(self)


_LIVE = note("Live")


def _is_notebook() -> bool:
    # Only a notebook has imported it. IPython in a terminal has no kernel, and cannot change what it has printed.
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None

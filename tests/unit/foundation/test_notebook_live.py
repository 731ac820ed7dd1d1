"""Views that follow what they show. tests/system/test_live_notebooks.py has real jobs."""

import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from trainyard.foundation import notebook_live
from trainyard.foundation.errors import NotFound, Unavailable
from trainyard.foundation.notebook_live import MAX_FOLLOWED, THREAD_NAME, View, show_live


class Frontend:
    """Stands for IPython in a notebook, which is not among the packages of the tests; keeps what outputs show."""

    def __init__(self) -> None:
        self.outputs: dict[str, list[str]] = {}
        self.changed = threading.Condition()

    def display(self, data: dict[str, str], *, raw: bool, display_id: str) -> None:
        assert raw
        with self.changed:
            self.outputs.setdefault(display_id, []).append(data["text/html"])
            self.changed.notify_all()

    def wait_until_shown(self, text: str) -> None:
        def is_shown() -> bool:
            return any(text in shown[-1] for shown in self.outputs.values())

        with self.changed:
            assert self.changed.wait_for(is_shown, timeout=30), self.outputs


@pytest.fixture
def frontend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Frontend]:
    made = Frontend()
    display = SimpleNamespace(display=made.display, update_display=made.display)
    shell: Any = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(notebook_live, "PAUSE_S", 0.01)
    yield made
    for follower in list(notebook_live._followed):
        follower.stop.set()
    for thread in threading.enumerate():
        if thread.name == THREAD_NAME:
            thread.join(30)


def test_outside_a_notebook_an_object_is_shown_as_any_other() -> None:
    with pytest.raises(NotImplementedError):
        show_live(lambda: View("", "", is_final=True))


def test_a_view_is_replaced_when_it_changes_until_it_is_final(frontend: Frontend) -> None:
    views = iter([View("one", "1", is_final=False)] * 3 + [View("two", "2", is_final=False)] + [View("end", "3", True)])
    show_live(lambda: next(views))
    frontend.wait_until_shown("end")
    (shown,) = frontend.outputs.values()
    assert shown[0].startswith("one")
    assert "Live" in shown[0]
    assert shown[-1] == "end"


def test_an_absent_yard_is_said_and_waited_for(frontend: Frontend) -> None:
    answers: Iterator[View | Unavailable] = iter(
        [View("one", "1", is_final=False), Unavailable("It is <away>."), View("end", "3", is_final=True)]
    )

    def look() -> View:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    show_live(look)
    frontend.wait_until_shown("end")
    (shown,) = frontend.outputs.values()
    assert "Not up to date: It is &lt;away&gt;." in shown[1]


def test_what_cannot_be_read_at_first_is_said_without_a_traceback(frontend: Frontend) -> None:
    def look() -> View:
        raise NotFound("training job", "<none>")

    show_live(look)
    (shown,) = frontend.outputs.values()
    assert len(shown) == 1
    assert "This cannot be shown: There is no training job named &quot;&lt;none&gt;&quot;." in shown[0]


def test_an_error_ends_the_view_and_is_shown(frontend: Frontend) -> None:
    answers = iter([View("one", "1", is_final=False)])
    show_live(lambda: next(answers))
    frontend.wait_until_shown("StopIteration")


def test_the_oldest_of_many_views_is_not_followed_any_more(frontend: Frontend) -> None:
    for number in range(MAX_FOLLOWED + 1):
        show_live(lambda number=number: View(f"view {number}", "", is_final=False))  # type: ignore[misc]
    frontend.wait_until_shown("Run the cell again")
    first, *others = frontend.outputs.values()
    assert "Run the cell again" in first[-1]
    assert not any("Run the cell again" in each[-1] for each in others)

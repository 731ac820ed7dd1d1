import pytest

from trainyard.instance.containers.keeper import Exit
from trainyard.instance.containers.launched import ended_of
from trainyard.instance.sandbox.contract import Ended


@pytest.mark.parametrize(
    ("found", "ended"),
    [
        (Exit(0, is_oom=False, has_run=True), Ended(0, None)),
        (Exit(3, is_oom=False, has_run=True), Ended(3, None)),
        (Exit(137, is_oom=True, has_run=True), Ended(None, 9, is_oom=True)),
        (Exit(143, is_oom=False, has_run=True), Ended(None, 15)),
        (Exit(255, is_oom=False, has_run=True), Ended(255, None)),
        (Exit(0, is_oom=True, has_run=True), Ended(0, None)),
        (None, Ended(None, 9)),
    ],
)
def test_an_exit_status_is_told_as_that_of_any_other_program(found: Exit | None, ended: Ended) -> None:
    assert ended_of(found) == ended

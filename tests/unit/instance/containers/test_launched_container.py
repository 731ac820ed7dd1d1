import pytest

from trainyard.instance.containers.launched_container import program_exit
from trainyard.instance.containers.supervisor import ContainerExit
from trainyard.instance.sandbox.contract import ProgramExit


@pytest.mark.parametrize(
    ("found", "ended"),
    [
        (ContainerExit(0, is_oom=False, has_run=True), ProgramExit(0, None)),
        (ContainerExit(3, is_oom=False, has_run=True), ProgramExit(3, None)),
        (ContainerExit(137, is_oom=True, has_run=True), ProgramExit(None, 9, is_oom=True)),
        (ContainerExit(143, is_oom=False, has_run=True), ProgramExit(None, 15)),
        (ContainerExit(255, is_oom=False, has_run=True), ProgramExit(255, None)),
        (ContainerExit(0, is_oom=True, has_run=True), ProgramExit(0, None)),
        (None, ProgramExit(None, 9)),
    ],
)
def test_an_exit_status_is_reported_like_that_of_any_program(found: ContainerExit | None, ended: ProgramExit) -> None:
    assert program_exit(found) == ended

"""By which name a process writes."""

import pytest

from trainyard.instance.hook.workers import Worker, this_worker


@pytest.mark.parametrize(
    ("environment", "worker"),
    [
        ({}, Worker(0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, Worker(3, 8)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, Worker(1, 2)),
        ({"PMI_RANK": "2", "PMI_SIZE": "4"}, Worker(2, 4)),
        ({"RANK": "1"}, Worker(0, 1)),
        ({"RANK": "x", "WORLD_SIZE": "2"}, Worker(0, 1)),
    ],
)
def test_a_worker_is_the_rank_that_its_launcher_gave_it(environment: dict[str, str], worker: Worker) -> None:
    assert this_worker(environment) == worker
    assert worker.name == f"worker_{worker.rank}"

"""The rank and name of a process."""

import pytest

from trainyard.instance.hook.worker import WorkerRank, current_rank


@pytest.mark.parametrize(
    ("environment", "worker"),
    [
        ({}, WorkerRank(0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, WorkerRank(3, 8)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, WorkerRank(1, 2)),
        ({"PMI_RANK": "2", "PMI_SIZE": "4"}, WorkerRank(2, 4)),
        ({"RANK": "1"}, WorkerRank(0, 1)),
        ({"RANK": "x", "WORLD_SIZE": "2"}, WorkerRank(0, 1)),
    ],
)
def test_a_worker_is_the_rank_that_its_launcher_gave_it(environment: dict[str, str], worker: WorkerRank) -> None:
    assert current_rank(environment) == worker
    assert worker.name == f"worker_{worker.rank}"

from typing import Any

import pytest

from trainyard.distribution import launcher_hyperparameters
from trainyard.foundation.errors import InvalidRequest

TYPE = "ml.p3.16xlarge"


@pytest.mark.parametrize(
    ("distribution", "hyperparameters"),
    [
        (None, {}),
        (
            {"mpi": {"enabled": True, "processes_per_host": 4, "custom_mpi_options": "--NCCL_DEBUG INFO"}},
            {
                "sagemaker_mpi_enabled": True,
                "sagemaker_mpi_num_of_processes_per_host": 4,
                "sagemaker_mpi_custom_mpi_options": "--NCCL_DEBUG INFO",
            },
        ),
        (
            {"torch_distributed": {"enabled": True}},
            {"sagemaker_torch_distributed_enabled": True, "sagemaker_instance_type": TYPE},
        ),
        (
            {"smdistributed": {"dataparallel": {"enabled": True}}},
            {
                "sagemaker_distributed_dataparallel_enabled": True,
                "sagemaker_distributed_dataparallel_custom_mpi_options": "",
                "sagemaker_instance_type": TYPE,
            },
        ),
        ({"parameter_server": {"enabled": True}}, {"sagemaker_parameter_server_enabled": True}),
        (
            {"multi_worker_mirrored_strategy": {"enabled": False}},
            {"sagemaker_multi_worker_mirrored_strategy_enabled": False},
        ),
    ],
)
def test_each_way_has_the_hyperparameters_that_the_sdk_sends(
    distribution: dict[str, Any] | None, hyperparameters: dict[str, Any]
) -> None:
    assert launcher_hyperparameters(distribution, TYPE) == hyperparameters


def test_pytorchddp_is_worded_as_data_parallelism() -> None:
    of_ddp = launcher_hyperparameters({"pytorchddp": {"enabled": True}}, TYPE)
    assert of_ddp == launcher_hyperparameters({"smdistributed": {"dataparallel": {"enabled": True}}}, TYPE)


def test_model_parallelism_brings_its_parameters() -> None:
    given = {
        "smdistributed": {"modelparallel": {"enabled": True, "parameters": {"partitions": 2}}},
        "mpi": {"enabled": True, "processes_per_host": 2},
    }
    found = launcher_hyperparameters(given, TYPE)
    assert found["mp_parameters"] == {"partitions": 2}
    assert found["sagemaker_mpi_num_of_processes_per_host"] == 2


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="distribution has horovod; it can have mpi"):
        launcher_hyperparameters({"horovod": {"enabled": True}}, TYPE)


def test_two_words_for_one_way_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="both pytorchddp and smdistributed"):
        launcher_hyperparameters({"pytorchddp": {"enabled": True}, "smdistributed": {}}, TYPE)

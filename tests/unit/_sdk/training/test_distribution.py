import re
from typing import Any

import pytest

from trainyard._sdk.training.distribution import launcher_hyperparameters
from trainyard.foundation.errors import InvalidRequest
from trainyard.instance_group import InstanceGroup

TYPE = "ml.p3.16xlarge"
MPI = {"mpi": {"enabled": True}}
FEEDERS, TRAINERS = InstanceGroup("feeders", "ml.c5.xlarge", 2), InstanceGroup("trainers", TYPE, 1)


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


def test_model_parallelism_has_its_parameters() -> None:
    given = {
        "smdistributed": {"modelparallel": {"enabled": True, "parameters": {"partitions": 2}}},
        "mpi": {"enabled": True, "processes_per_host": 2},
    }
    found = launcher_hyperparameters(given, TYPE)
    assert found["mp_parameters"] == {"partitions": 2}
    assert found["sagemaker_mpi_num_of_processes_per_host"] == 2


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(InvalidRequest, match='distribution has the unknown key "horovod"; the keys are mpi'):
        launcher_hyperparameters({"horovod": {"enabled": True}}, TYPE)


def test_two_words_for_one_way_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="both pytorchddp and smdistributed"):
        launcher_hyperparameters({"pytorchddp": {"enabled": True}, "smdistributed": {}}, TYPE)


@pytest.mark.parametrize(
    ("distribution", "told"),
    [
        (
            {"mpi": {"enable": True}},
            'distribution["mpi"] has the unknown key "enable"; the keys are enabled, processes_per_host',
        ),
        ({"mpi": True}, 'distribution["mpi"] is True; it must be a dictionary, such as {"enabled": …}'),
        (
            {"smdistributed": {"dataparallel": {"on": True}}},
            'distribution["smdistributed"]["dataparallel"] has the unknown key "on"; the keys are enabled',
        ),
        (
            {"smdistributed": {"ddp": {}}},
            'distribution["smdistributed"] has the unknown key "ddp"; the keys are dataparallel',
        ),
        ({"mpi": {"enabled": "false"}}, 'distribution["mpi"]["enabled"] is \'false\'; it must be True or False'),
        ("mpi", "distribution is 'mpi'; it must be a dictionary, such as {\"mpi\": …}"),
        ({"pytorchddp": "yes"}, "distribution[\"pytorchddp\"] is 'yes'"),
    ],
)
def test_a_word_that_would_do_nothing_is_refused(distribution: Any, told: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(told)):
        launcher_hyperparameters(distribution, TYPE)


@pytest.mark.parametrize("chosen", [[TRAINERS], ["trainers"]])
def test_some_groups_of_instances_train_together(chosen: list[Any]) -> None:
    found = launcher_hyperparameters({**MPI, "instance_groups": chosen}, None, groups=[FEEDERS, TRAINERS])
    assert found["sagemaker_distribution_instance_groups"] == ["trainers"]
    assert "sagemaker_distribution_instance_groups" not in launcher_hyperparameters(
        MPI, None, groups=[FEEDERS, TRAINERS]
    )


def test_the_only_group_trains_together() -> None:
    found = launcher_hyperparameters(MPI, None, groups=[TRAINERS])
    assert found["sagemaker_distribution_instance_groups"] == ["trainers"]
    assert launcher_hyperparameters(None, None, groups=[TRAINERS]) == {}


@pytest.mark.parametrize(
    ("distribution", "groups", "told"),
    [
        (
            {**MPI, "instance_groups": ["trainer"]},
            [FEEDERS, TRAINERS],
            'names the instance group "trainer"; the job has feeders, trainers',
        ),
        ({**MPI, "instance_groups": [TRAINERS]}, [], 'names the instance group "trainers"; the job has none'),
        ({"instance_groups": [TRAINERS]}, [TRAINERS], "enables nothing for them; add one of mpi"),
        ({**MPI, "instance_groups": "trainers"}, [TRAINERS], 'distribution["instance_groups"] must be a list'),
    ],
)
def test_groups_that_cannot_train_together_are_refused(
    distribution: dict[str, Any], groups: list[InstanceGroup], told: str
) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(told)):
        launcher_hyperparameters(distribution, None, groups=groups)

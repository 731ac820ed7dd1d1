"""The launcher that the hyperparameters of a job select."""

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.launch_kinds import LaunchKind
from trainyard.foundation.jobs.training.plan import InstanceGroupPlan, LaunchPlan
from trainyard.server.services.sagemaker.training.launchers import launch_of
from trainyard.server.services.sagemaker.training.program import TrainingProgram

GROUPS = (InstanceGroupPlan("feeders", "ml.m5.large", 1), InstanceGroupPlan("trainers", "ml.m5.large", 2))


def launch(*command: str, image: str = "pytorch-training:2.6", **hyperparameters: str) -> LaunchPlan:
    return launch_of(hyperparameters, GROUPS, program=TrainingProgram("train.py", "s3://b/c", command), image=image)


def mpi(options: str) -> LaunchPlan:
    return launch(sagemaker_mpi_enabled="true", sagemaker_mpi_custom_mpi_options=options)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sagemaker_torch_distributed_enabled", LaunchKind.TORCHRUN),
        ("sagemaker_distributed_dataparallel_enabled", LaunchKind.DATA_PARALLEL),
        ("sagemaker_pytorch_ddp_enabled", LaunchKind.DATA_PARALLEL),
        ("sagemaker_mpi_enabled", LaunchKind.MPI),
        ("sagemaker_parameter_server_enabled", LaunchKind.PARAMETER_SERVER),
        ("sagemaker_multi_worker_mirrored_strategy_enabled", LaunchKind.TENSORFLOW_WORKERS),
    ],
)
def test_each_switch_has_its_launcher_when_it_is_on(name: str, kind: LaunchKind) -> None:
    assert launch(**{name: "true"}).kind is kind
    assert launch(**{name: "True"}).kind is kind
    assert launch(**{name: "false"}) == LaunchPlan()


def test_of_several_launcher_switches_the_same_one_wins_as_on_sagemaker() -> None:
    both = launch(sagemaker_mpi_enabled="true", sagemaker_torch_distributed_enabled="true")
    assert both.kind is LaunchKind.TORCHRUN


def test_the_servers_of_tensorflow_are_its_own() -> None:
    plan = launch(image="tensorflow-training:2.18-cpu", sagemaker_parameter_server_enabled="true")
    assert (plan.kind, plan.processes) == (LaunchKind.TENSORFLOW_SERVER, 1)


def test_a_command_line_needs_no_launcher() -> None:
    assert launch("/bin/train", sagemaker_mpi_enabled="true") == LaunchPlan()


def test_processes_are_as_many_as_asked_for_else_as_the_machine_has_gpus() -> None:
    assert launch(sagemaker_mpi_enabled="true").processes is None
    for given in ("8", '"8"'):
        assert launch(sagemaker_mpi_enabled="true", sagemaker_mpi_num_of_processes_per_host=given).processes == 8


@pytest.mark.parametrize("given", ["0", "-1", "257", "1.5", '"many"', "true"])
def test_an_invalid_number_of_processes_is_refused(given: str) -> None:
    with pytest.raises(InvalidRequest, match=r"processes_per_host is .* from 1 to 256"):
        launch(sagemaker_mpi_enabled="true", sagemaker_mpi_num_of_processes_per_host=given)


def test_options_set_variables_and_the_rest_is_for_mpirun() -> None:
    plan = mpi('"--NCCL_DEBUG INFO -x SHAPE=round -x PATH -mca btl_vader_single_copy_mechanism none -verbose"')
    assert plan.variables == {"NCCL_DEBUG": "INFO", "SHAPE": "round"}
    assert plan.options == ("-mca", "btl_vader_single_copy_mechanism", "none", "-verbose")


def test_the_options_of_data_parallelism_have_a_name_of_their_own() -> None:
    plan = launch(
        sagemaker_distributed_dataparallel_enabled="true",
        sagemaker_distributed_dataparallel_custom_mpi_options='"--NCCL_DEBUG=WARN"',
    )
    assert plan.variables == {"NCCL_DEBUG": "WARN"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("--no-such-thing", "has the unknown option --no-such-thing; use"),
        ("-np 4", "has the unknown option -np; use"),
        ("train.py", "has the unknown option train.py; use"),
        ("-mca btl", "ends with -mca, which needs a value"),
        ("--NCCL_DEBUG", "ends with --NCCL_DEBUG"),
        ("-x 1A=2", '"1A" is not a valid name'),
        ("'open", "cannot be split"),
        ("[1]", "cannot be split"),
    ],
)
def test_options_that_nobody_knows_are_refused_by_name(options: str, why: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        mpi(options)
    assert why in refused.value.message


def test_groups_that_train_together_must_be_of_the_job() -> None:
    named = {"sagemaker_mpi_enabled": "true", "sagemaker_distribution_instance_groups": '["trainers"]'}
    assert launch(**named).groups == ("trainers",)
    with pytest.raises(InvalidRequest, match='names "nobody"; the job has feeders, trainers'):
        launch(**named | {"sagemaker_distribution_instance_groups": '["nobody"]'})


TWO_BY_THREE = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2"}  # on three instances


@pytest.mark.parametrize(
    "parameters",
    ['{"partitions": 2}', '{"pipeline_parallel_degree": 3, "tensor_parallel_degree": 2}', '{"microbatches": 4}', "{}"],
)
def test_a_model_in_parts_is_launched_by_mpi(parameters: str) -> None:
    plan = launch(mp_parameters=parameters, **TWO_BY_THREE)
    assert (plan.kind, plan.processes) == (LaunchKind.MPI, 2)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ('{"partitions": 4}', "partitions 4, but the job has 6 ranks; their number must be a multiple of 4"),
        ('{"partitions": 2, "tensor_parallel_degree": 2}', "tensor_parallel_degree 2, but the job has 6 ranks"),
        ('{"partitions": "two"}', "partitions of mp_parameters is 'two'; it must be a whole number, 1 or more"),
        ("[2]", "mp_parameters is .2.; it must be an object"),
    ],
)
def test_parts_that_ranks_cannot_make_up_are_refused(parameters: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        launch(mp_parameters=parameters, **TWO_BY_THREE)


def test_only_ranks_of_the_chosen_groups_make_up_parts() -> None:
    chosen = {"sagemaker_distribution_instance_groups": '["trainers"]'}
    assert launch(mp_parameters='{"partitions": 4}', **TWO_BY_THREE, **chosen).groups == ("trainers",)

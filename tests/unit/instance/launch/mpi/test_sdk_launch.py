"""What the launcher runs for the MPI driver of the sagemaker SDK."""

import json

from trainyard.instance.launch.mpi.sdk_launch import make_spec, option_variables

ENVIRONMENT = {
    "SM_HOSTS": '["algo-1", "algo-2"]',
    "SM_CURRENT_HOST": "algo-2",
    "SM_NUM_CPUS": "4",
    "SM_NUM_GPUS": "0",
    "SM_NETWORK_INTERFACE_NAME": "lo",
    "SM_DISTRIBUTED_CONFIG": json.dumps(
        {"process_count_per_node": 2, "mpi_additional_options": ["-x", "A=b=c", "-x", "PATH"]}
    ),
    "MASTER_PORT": "23456",
    "TRAINING_JOB_NAME": "mine",
    "TRAINYARD_STACKS": "/run/trainyard/launch/stacks",
    "AWS_SECRET_ACCESS_KEY": "secret",
}


def test_each_host_gets_as_many_ranks_as_the_trainer_asked_for() -> None:
    spec = make_spec(ENVIRONMENT, python="python3", mpirun=None, uses_mpi=False)
    assert spec.cluster.processes == {"algo-1": 2, "algo-2": 2}
    assert (spec.cluster.host, spec.cluster.port, spec.threads) == ("algo-2", 23456, 2)
    assert (spec.folder, spec.mpi) == ("/run/trainyard/launch", None)


def test_without_a_number_there_is_a_rank_for_each_gpu_or_one() -> None:
    for config in ("{}", '{"process_count_per_node": null}'):
        given = {**ENVIRONMENT, "SM_DISTRIBUTED_CONFIG": config}
        assert make_spec(given, python="python3", mpirun=None, uses_mpi=False).cluster.local_size == 1
        on_gpus = make_spec({**given, "SM_NUM_GPUS": "4"}, python="python3", mpirun=None, uses_mpi=False)
        assert on_gpus.cluster.local_size == 4


def test_a_real_mpirun_gets_the_options() -> None:
    spec = make_spec(ENVIRONMENT, python="python3", mpirun="/env/bin/mpirun", uses_mpi=True)
    assert spec.mpi is not None
    assert (spec.mpi.mpirun, spec.mpi.options) == ("/env/bin/mpirun", ["-x", "A=b=c", "-x", "PATH"])


def test_a_program_that_calls_mpi_itself_is_refused_without_mpirun() -> None:
    spec = make_spec(ENVIRONMENT, python="python3", mpirun=None, uses_mpi=True)
    assert spec.mpi is not None
    assert spec.mpi.mpirun == ""
    assert "each of its 4 processes would be alone" in spec.mpi.refusal
    alone = {**ENVIRONMENT, "SM_HOSTS": '["algo-2"]', "SM_DISTRIBUTED_CONFIG": "{}"}
    assert make_spec(alone, python="python3", mpirun=None, uses_mpi=True).mpi is None


def test_options_that_set_variables_set_them_without_mpirun_too() -> None:
    assert option_variables(["-x", "A=b=c", "-x", "PATH", "--bind-to", "none"]) == {"A": "b=c"}

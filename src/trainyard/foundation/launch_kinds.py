"""The ways in which the program of a job becomes processes. Apart from the rest of a job, because launchers load it."""

from enum import StrEnum


class LaunchKind(StrEnum):
    """How the program of each instance becomes processes that train together."""

    SINGLE = "single"  # one process, which is told nothing of others but where the first is
    TORCHRUN = "torchrun"
    MPI = "mpi"
    DATA_PARALLEL = "data_parallel"
    PARAMETER_SERVER = "parameter_server"
    TENSORFLOW_SERVER = "tensorflow_server"  # the same by TensorFlow's own servers
    TENSORFLOW_WORKERS = "tensorflow_workers"

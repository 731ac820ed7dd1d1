"""How the program of a job becomes processes. A module of its own, because launchers load nothing else."""

from enum import StrEnum


class LaunchKind(StrEnum):
    """How the program becomes processes on each instance."""

    SINGLE = "single"  # one process, which knows only the address of the first host
    TORCHRUN = "torchrun"
    MPI = "mpi"
    DATA_PARALLEL = "data_parallel"
    PARAMETER_SERVER = "parameter_server"
    TENSORFLOW_SERVER = "tensorflow_server"  # by TensorFlow's own servers
    TENSORFLOW_WORKERS = "tensorflow_workers"

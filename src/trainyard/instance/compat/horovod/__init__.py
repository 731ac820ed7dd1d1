"""Replaces Horovod in environments that do not have it: for PyTorch, over torch.distributed."""

from pathlib import Path
from typing import Any, NoReturn

from trainyard_deferral import real_package

# The interface is that of 0.28.1.
__version__ = "0.28.1+trainyard"


def run(*_arguments: Any, **_options: Any) -> NoReturn:
    """Raise: the launcher of the job has already started the ranks."""
    raise NotImplementedError(
        "horovod.run starts ranks itself, but in a training job the launcher does that: request ranks with "
        'distribution={"mpi": {"enabled": True, "processes_per_host": ...}} and an instance_count.'
    )


def missing_framework(framework: str) -> ImportError:
    """Return the error for importing a framework that is not supported."""
    return ImportError(
        f"horovod.{framework} is not available: the environment has no Horovod, and Trainyard's own supports only "
        f"PyTorch (horovod.torch). Install horovod with {framework} support in the environment of the job.",
        name=f"horovod.{framework}",
    )


real_package(__name__, str(Path(__file__).parents[1]))

"""Stands in for the package of this name, where the environment does not have it: PyTorch, over torch.distributed."""

from pathlib import Path
from typing import Any, NoReturn

from trainyard_deferral import real_package

__version__ = "0.28.1+trainyard"  # the interface is that of 0.28.1


def run(*_arguments: Any, **_options: Any) -> NoReturn:
    """Refuse: the launcher of the job has started the ranks already."""
    raise NotImplementedError(
        "horovod.run starts ranks by itself, but in a training job the launcher does: ask for ranks with "
        'distribution={"mpi": {"enabled": True, "processes_per_host": ...}} and an instance_count.'
    )


def absent(framework: str) -> ImportError:
    """What the import of another framework's part raises."""
    return ImportError(
        f"horovod.{framework} is not here: the environment has no Horovod, and Trainyard's stand-in speaks for PyTorch "
        f"alone (horovod.torch). Install horovod for {framework} into the environment of the job.",
        name=f"horovod.{framework}",
    )


real_package(__name__, str(Path(__file__).parents[1]))

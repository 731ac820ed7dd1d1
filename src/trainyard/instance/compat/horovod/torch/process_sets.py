"""The one set of ranks that there is."""

from typing import Any

from . import world


class _AllRanks:
    """Every rank of the job."""

    process_set_id = 0

    def size(self) -> int:
        return int(world.size())

    def rank(self) -> int:
        return int(world.rank())

    def included(self) -> bool:
        return True


class ProcessSet(_AllRanks):
    """Refuses to be a set of some ranks."""

    def __init__(self, *_ranks: Any) -> None:
        raise NotImplementedError(
            "hvd.ProcessSet is not served: collectives are of all ranks. For some of them, use "
            "torch.distributed.new_group after hvd.init()."
        )


global_process_set: Any = _AllRanks()


def require_global(process_set: Any) -> None:
    if process_set is not global_process_set:
        raise NotImplementedError("process_set must be hvd.global_process_set: collectives are of all ranks.")

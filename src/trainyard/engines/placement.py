"""How a job is fitted to a machine, and whether it can start now. Nothing here looks at a real machine.

Two things are handed out so that no two instances have the same one: slots, one for each instance, and whole GPUs.
Cores and memory are ceilings. The ceilings of a type hold where the whole machine has that much for all instances of
the job, and shrink in proportion where it has not. Jobs side by side share cores and memory below their ceilings, as
the kernel divides them. So any job can start on an empty machine, however large the types it names.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainyard.engines.catalog import InstanceType
from trainyard.engines.contract import Capacity
from trainyard.foundation.errors import InvalidRequest
from trainyard.link.contract import LimitSpec

_GIB = 1024**3
_CPU_STEP = 100  # ceilings are whole hundredths of a core, rounded down


@dataclass(frozen=True, slots=True)
class Size:
    """How much of a machine one instance gets."""

    cpus: float
    memory_bytes: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Fit:
    """A job on an otherwise empty machine. `shortfalls` are sentences that say what is less than the types promise."""

    sizes: tuple[Size, ...]
    slots: int
    shortfalls: tuple[str, ...]


def fit(types: Sequence[InstanceType], machine: Capacity) -> Fit:
    """Fit a job with one instance of each of `types`, in that order, to the whole machine."""
    cpus = _scaled([each.cpus for each in types], machine.cpus)
    memory = _scaled(
        [None if each.memory_gib is None else each.memory_gib * _GIB for each in types], machine.memory_bytes
    )
    gpus = _scaled_whole([each.gpus for each in types], len(machine.gpus))
    sizes = tuple(
        Size(max(1, int(cpus[number] * _CPU_STEP)) / _CPU_STEP, int(memory[number]), gpus[number])
        for number in range(len(types))
    )
    slots = min(len(types), machine.slots)
    # Instances of one type lack the same, which is said once.
    lacking = dict.fromkeys(line for each, size in zip(types, sizes, strict=True) if (line := _lacking(each, size)))
    crowding = [f"Its {len(types)} instances share {_counted(slots, 'slot')}."] if slots < len(types) else []
    return Fit(sizes, slots, (*lacking, *crowding))


@dataclass(frozen=True, slots=True)
class Lack:
    """What there must be more of before a job can start; nothing when it can."""

    slots: int
    gpus: int


def lacking(types: Sequence[InstanceType], machine: Capacity, *, running: Sequence[LimitSpec]) -> Lack:
    """What a job that would start now lacks beside those that run."""
    fitted = fit(types, machine)
    gpus_taken = len({gpu for share in running for gpu in share.gpus})
    wanted = sum(size.gpus for size in fitted.sizes)
    slots, gpus = fitted.slots - (machine.slots - len(running)), wanted - (len(machine.gpus) - gpus_taken)
    return Lack(max(0, slots), max(0, gpus) if wanted else 0)


def place(
    types: Sequence[InstanceType], machine: Capacity, *, running: Sequence[LimitSpec]
) -> tuple[LimitSpec, ...] | None:
    """The share of each instance of a job that starts now beside those that run; None while there is no room.

    `running` has one share for each instance on the machine, of whichever job.
    """
    if lacking(types, machine, running=running) != Lack(0, 0):
        return None
    taken = {gpu for share in running for gpu in share.gpus}
    free = iter([gpu for gpu in machine.gpus if gpu not in taken])
    return tuple(
        LimitSpec(size.cpus, size.memory_bytes, gpus=tuple(next(free) for _ in range(size.gpus)))
        for size in fit(types, machine).sizes
    )


def check_strictly(types: Sequence[InstanceType], machine: Capacity) -> None:
    """InvalidRequest when the machine has less than what the types promise."""
    shortfalls = fit(types, machine).shortfalls
    if shortfalls:
        raise InvalidRequest(
            f"{' '.join(shortfalls)} This yard is strict and does not start such a job; name a smaller type or fewer "
            "instances."
        )


def _scaled(wanted: Sequence[float | None], there: float) -> list[float]:
    """What is wanted, or as much less of it in proportion as all together exceed what is there; None is everything."""
    amounts = [there if amount is None else amount for amount in wanted]
    total = sum(amounts)
    return [amount * there / total for amount in amounts] if total > there else amounts


def _scaled_whole(wanted: Sequence[int | None], there: int) -> list[int]:
    """The same in whole pieces. Instances that want the same get the same, so pieces may stay unused.

    Members of a gang of which some train on a GPU and some on the CPU would fail, or wait for each other for ever.
    """
    counts = [there if count is None else count for count in wanted]
    total = sum(counts)
    return [count * there // total for count in counts] if total > there else counts


def _lacking(wanted: InstanceType, size: Size) -> str:
    parts = list(_parts_lacking(wanted, size))
    if not parts:
        return ""
    listed = " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]
    return f"Each {wanted.name} gets {listed} on this machine."


def _parts_lacking(wanted: InstanceType, size: Size) -> Iterator[str]:
    if wanted.cpus is not None and size.cpus < wanted.cpus:
        yield f"{size.cpus:g} of {wanted.cpus:g} CPUs"
    if wanted.memory_gib is not None and size.memory_bytes < wanted.memory_gib * _GIB:
        yield f"{size.memory_bytes / _GIB:.1f} of {wanted.memory_gib:g} GiB of memory"
    if wanted.gpus is not None and size.gpus < wanted.gpus:
        yield f"{size.gpus or 'none'} of {_counted(wanted.gpus, 'GPU')}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

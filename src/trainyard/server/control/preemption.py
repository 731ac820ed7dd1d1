"""Which spot jobs give their places to a job that waits. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainyard.engines.placement import Demand, Lack, Room
from trainyard.foundation.jobs import SecondaryStatus, Share, Status, TrainingJob
from trainyard.server.records.contract import ResourceId


@dataclass(frozen=True, slots=True)
class Place:
    """What a spot job has of the machine, and since when."""

    id: ResourceId
    slots: int
    gpus: int
    since: datetime


def chosen(lack: Lack, places: Iterable[Place], *, now: datetime) -> Sequence[Place]:
    """The fewest that make up for what is lacking, of several such choices the one by which the least work is lost.

    Nobody is chosen where all of them together are not enough.
    """
    # For each amount that can be freed, counted up to what is lacking, the best choice that frees it.
    best: dict[Lack, tuple[Place, ...]] = {Lack(0, 0): ()}
    for place in places:
        for freed, already in list(best.items()):
            more = Lack(min(lack.slots, freed.slots + place.slots), min(lack.gpus, freed.gpus + place.gpus))
            choice = (*already, place)
            if more not in best or _loss(choice, now) < _loss(best[more], now):
                best[more] = choice
    return best.get(lack, ())


@dataclass(frozen=True, slots=True)
class NodePlace:
    """What a spot job has of which nodes, and since when."""

    id: ResourceId
    shares: Sequence[Share]
    since: datetime


def outplaced(demand: Demand, room: Room, places: Sequence[NodePlace]) -> Sequence[NodePlace]:
    """Those that must go so that a job finds the room it would have without all of them.

    These are the youngest, and none that could stay. Nobody is chosen where all of them together are not enough.
    """
    if not places or room.place(demand) is None:
        return ()
    gone = []
    for each in sorted(places, key=lambda each: each.since):
        fuller = room.copy()
        fuller.take(each.shares)
        if fuller.place(demand) is None:
            gone.append(each)
        else:
            room = fuller
    return gone


def is_leaving(job: TrainingJob) -> bool:
    """Whether the place of a job will soon be free anyway."""
    if job.attempt is None or job.attempt.interruption:
        return True
    return job.status is Status.STOPPING or job.secondary is SecondaryStatus.UPLOADING


def _loss(choice: Sequence[Place], now: datetime) -> tuple[int, timedelta]:
    return len(choice), sum((now - place.since for place in choice), timedelta())

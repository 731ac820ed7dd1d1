"""A random day of jobs for a cluster and of outages of its nodes, reproducible by its seed."""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from trainyard.engines.catalog import InstanceType
from trainyard.engines.contract import Node

T = TypeVar("T")

DAY_S = 86_400
ACCOUNTS = ("anna", "ben", "carla", "dora", "emil")

_GIB = 1024**3
# Fraction of the jobs, by account.
_SHARES = (0.30, 0.25, 0.20, 0.15, 0.10)
_COUNTS = (((1, 1), 0.60), ((2, 4), 0.20), ((5, 16), 0.13), ((17, 48), 0.05), ((49, 100), 0.02))
_PLAIN = (("ml.m5.large", 0.35), ("ml.m5.xlarge", 0.40), ("ml.c5.4xlarge", 0.25))
_WITH_GPUS = (("ml.g4dn.xlarge", 0.6), ("ml.p3.8xlarge", 0.4))
_GPU_JOBS, _SPOT_JOBS, _FAILING = 0.3, 0.3, 0.03
_MOST_GPU_INSTANCES = 24
_MEDIAN_S, _SPREAD, _SHORTEST_S, _LONGEST_S = 600, 1.1, 20, 4 * 3600
# The fraction of all jobs that one account creates at once.
_BURST_AT_S, _BURST = 2 * 3600, 0.05
# Per node.
_FAILURES_A_DAY, _SPOT_LOSSES_A_DAY = 0.2, 4.0
_AWAY_S = (20, 1_800)


@dataclass(frozen=True, slots=True)
class Planned:
    """A job that will be created."""

    name: str
    account: str
    at_s: float
    instance_type: str
    count: int
    length_s: float
    is_spot: bool
    code: int


@dataclass(frozen=True, slots=True)
class Outage:
    """A time during which a node cannot be reached."""

    node: str
    at_s: float
    until_s: float


def nodes(count: int) -> tuple[Node, ...]:
    """Return nodes: a quarter of them with GPUs, a tenth spot."""
    return tuple(_node(number, count) for number in range(count))


def workload(
    jobs: int, *, cluster: Sequence[Node], types: Mapping[str, InstanceType], load: float, seed: int
) -> list[Planned]:
    """Return jobs in the order of arrival. Those with and those without GPUs each demand `load` of the capacity."""
    chance = random.Random(seed)
    planned = [_job(number, jobs, chance) for number in range(jobs)]
    factors = {is_gpu: _factor(planned, cluster, types=types, load=load, is_gpu=is_gpu) for is_gpu in (True, False)}
    scaled = (
        replace(each, length_s=max(_SHORTEST_S, each.length_s * factors[bool(types[each.instance_type].gpus)]))
        for each in planned
    )
    return sorted(scaled, key=lambda each: each.at_s)


def outages(cluster: Sequence[Node], *, seed: int) -> list[Outage]:
    """Return the outages of a day, in order. Outages of one node do not overlap."""
    chance = random.Random(f"outages {seed}")
    return sorted((each for node in cluster for each in _outages(node, chance)), key=lambda each: each.at_s)


def _node(number: int, count: int) -> Node:
    if number < count // 4:
        return Node(f"gpu-{number:03}", 32, 96, 768 * _GIB, tuple(range(8)), reserves=True)
    is_spot = number >= count - count // 10
    return Node(f"{'spot' if is_spot else 'cpu'}-{number:03}", 64, 64, 256 * _GIB, reserves=True, is_spot=is_spot)


def _job(number: int, jobs: int, chance: random.Random) -> Planned:
    is_burst = number < jobs * _BURST
    is_gpu = not is_burst and chance.random() < _GPU_JOBS
    low, high = _choose(_COUNTS, chance)
    count = min(chance.randint(low, high), _MOST_GPU_INSTANCES if is_gpu else high)
    return Planned(
        name=f"job-{number:05}",
        account=ACCOUNTS[0] if is_burst else chance.choices(ACCOUNTS, _SHARES)[0],
        at_s=_BURST_AT_S if is_burst else _moment(chance),
        instance_type=_choose(_WITH_GPUS if is_gpu else _PLAIN, chance),
        count=1 if is_burst else count,
        length_s=min(_LONGEST_S, chance.lognormvariate(math.log(_MEDIAN_S), _SPREAD)),
        is_spot=chance.random() < _SPOT_JOBS,
        code=int(chance.random() < _FAILING),
    )


def _moment(chance: random.Random) -> float:
    """Return a time of arrival; more jobs arrive by day than by night."""
    while True:
        at_s = chance.uniform(0, DAY_S)
        if chance.random() < 0.65 + 0.35 * math.sin(2 * math.pi * (at_s / DAY_S - 0.25)):
            return at_s


def _choose(choices: Sequence[tuple[T, float]], chance: random.Random) -> T:
    return chance.choices([each for each, _ in choices], [weight for _, weight in choices])[0]


def _factor(
    planned: Sequence[Planned],
    cluster: Sequence[Node],
    *,
    types: Mapping[str, InstanceType],
    load: float,
    is_gpu: bool,
) -> float:
    """Return the factor for the lengths of jobs that gives the cluster the wanted load."""
    mine = [each for each in planned if bool(types[each.instance_type].gpus) is is_gpu]
    wanted = sum(each.count * each.length_s * _extent(types[each.instance_type], is_gpu=is_gpu) for each in mine)
    there = sum(len(node.gpus) if is_gpu else (0 if node.gpus else node.cpus) for node in cluster) * DAY_S
    return load * there / wanted if wanted else 1.0


def _extent(wanted: InstanceType, *, is_gpu: bool) -> float:
    return float((wanted.gpus if is_gpu else wanted.cpus) or 0)


def _outages(node: Node, chance: random.Random) -> Iterator[Outage]:
    a_day = _SPOT_LOSSES_A_DAY if node.is_spot else _FAILURES_A_DAY
    at_s = chance.expovariate(a_day / DAY_S)
    while at_s < DAY_S:
        until_s = at_s + chance.uniform(*_AWAY_S)
        yield Outage(node.name, at_s, until_s)
        at_s = until_s + chance.expovariate(a_day / DAY_S)

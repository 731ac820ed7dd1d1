"""Loads the profile of a job from the files of its instances. The only module of insight that reads them."""

import types
import typing
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries, StepPhase
from trainyard.formats.profiles.hardware_reader import HardwareTable, read_hardware
from trainyard.formats.profiles.step_reader import RankSteps, read_step_folder
from trainyard.formats.profiles.step_times import MODES
from trainyard.formats.tensors.contract import Mode
from trainyard.insight.profiling.contract import (
    HardwareSamples,
    HotLine,
    InstanceFacts,
    JobProfile,
    LoaderFacts,
    MemoryHolder,
    Numbers,
    ProgramFacts,
    RankProfile,
    StepTimes,
    Synchronization,
)

# Of one instance in one attempt.
MAX_SAMPLES = 100_000
# Counters, and bits.
_NO_MEANS = (HardwareMetric.GPU_ENERGY_JOULES, HardwareMetric.GPU_THROTTLE_REASONS)
_MODES = tuple(Mode(name) for name in MODES)
# What a program may say about itself, so that it cannot fill the yard's memory.
_MAX_TEXT, _MAX_ITEMS = 500, 1024
_MAX_NOTED_FACTS = 5


@dataclass(frozen=True, slots=True)
class InstanceSource:
    """The folders `hardware` and `steps` of one instance in one attempt, and what the instance offers."""

    host: str
    hardware: Path
    steps: Path
    facts: InstanceFacts = field(default_factory=InstanceFacts)


def load_profile(
    job: str, sources: Sequence[InstanceSource], *, started_us: int, ended_us: int | None, needs_hardware: bool = True
) -> JobProfile:
    """Return the profile of a job. Sources with the same host are its attempts, in order.

    Steps of a rank that continue in a later process or attempt follow those before, and their numbers go on. Processes
    of the same rank that ran at the same time have a name each. Nothing in the files raises; `notes` say what is wrong.
    """
    by_host: dict[str, list[InstanceSource]] = defaultdict(list)
    for source in sources:
        by_host[source.host].append(source)
    notes: list[str] = []
    ranks: list[RankProfile] = []
    for host, attempts in by_host.items():
        found = [read_step_folder(each.steps) for each in attempts]
        notes += [f"{host}: {note}" for folder in found for note in folder.notes]
        ranks += _ranks(host, [each for folder in found for each in folder.processes], notes)
    return JobProfile(
        job=job,
        started_us=started_us,
        ended_us=ended_us,
        hardware={host: _hardware(attempts) for host, attempts in by_host.items()} if needs_hardware else {},
        instances={host: attempts[-1].facts for host, attempts in by_host.items()},
        ranks=sorted(ranks, key=lambda each: (each.rank, each.host, each.name)),
        notes=tuple(dict.fromkeys(notes)),
    )


def _hardware(attempts: Iterable[InstanceSource]) -> HardwareSamples:
    tables = [_average_neighbours(table) for each in attempts if len(table := read_hardware(each.hardware))]
    if len(tables) == 1:
        return HardwareSamples(tables[0].times_us, tables[0].series)
    return _joined_hardware(tables)


def _average_neighbours(table: HardwareTable) -> HardwareTable:
    """Return means of neighbours if there are many samples: days at ten a second would fill the yard's memory."""
    factor = -(-len(table) // MAX_SAMPLES)
    if factor <= 1:
        return table
    firsts = np.arange(0, len(table), factor)
    lasts = np.append(firsts[1:], len(table)) - 1
    series = {}
    for key, values in table.series.items():
        if key.metric in _NO_MEANS:
            series[key] = values[lasts]
            continue
        is_known = np.isfinite(values)
        counts = np.add.reduceat(is_known.astype(np.float64), firsts)
        sums = np.add.reduceat(np.where(is_known, values, 0.0), firsts)
        series[key] = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return HardwareTable(table.times_us[lasts], series)


def _joined_hardware(tables: Sequence[HardwareTable]) -> HardwareSamples:
    times = np.concatenate([np.empty(0, np.int64), *(each.times_us for each in tables)])
    columns: dict[HardwareSeries, Numbers] = {}
    first = 0
    for table in tables:
        for series, values in table.series.items():
            column = columns.setdefault(series, np.full(len(times), np.nan))
            column[first : first + len(table)] = values
        first += len(table)
    order = np.argsort(times, kind="stable")
    return HardwareSamples(times[order], {series: values[order] for series, values in columns.items()})


def _ranks(host: str, processes: Sequence[RankSteps], notes: list[str]) -> list[RankProfile]:
    """Return the ranks of a host: chains of processes that ran one after the other."""
    chains: dict[str, list[RankSteps]] = {}
    for process in sorted(processes, key=lambda each: int(each.steps.starts_us[0])):
        number = 1
        name = process.name
        while name in chains and chains[name][-1].steps.ends_us[-1] > process.steps.starts_us[0]:
            number += 1
            name = f"{process.name}-{number}"
        chains.setdefault(name, []).append(process)
    return [
        RankProfile(
            name=name,
            host=host,
            rank=chain[0].rank,
            steps=_joined_steps(chain),
            program=_program(chain, f"{host}: {name}", notes),
        )
        for name, chain in chains.items()
    ]


def _joined_steps(chain: Sequence[RankSteps]) -> StepTimes:
    tables = [each.steps for each in chain]
    numbers = []
    next_number = 0
    for table in tables:
        offset = max(0, next_number - int(table.numbers[0]))
        numbers.append(table.numbers + offset)
        next_number = int((numbers[-1] + table.counts).max())
    return StepTimes(
        numbers=np.concatenate(numbers),
        counts=np.concatenate([each.counts for each in tables]),
        modes=[_MODES[mode] for each in tables for mode in each.modes.tolist()],
        starts_us=np.concatenate([each.starts_us for each in tables]),
        ends_us=np.concatenate([each.ends_us for each in tables]),
        phases_s=np.concatenate([each.phases_s for each in tables]),
    )


def _program(chain: Sequence[RankSteps], where: str, notes: list[str]) -> ProgramFacts:
    """Return the facts of the last process that has any."""
    plain = next((each.facts for each in reversed(chain) if each.facts), {})
    faults: list[str] = []
    program = read_program_facts(plain, faults)
    if faults:
        shown = ", ".join(sorted(set(faults))[:_MAX_NOTED_FACTS])
        notes.append(f"{where} reports facts about its program that cannot be read, and are left out: {shown}.")
    return program


def read_program_facts(plain: Mapping[str, Any], faults: list[str]) -> ProgramFacts:
    """Return what a program reported about itself. Unknown members are ignored; names of faulty ones go to `faults`."""
    return typing.cast(ProgramFacts, _dataclass_value(ProgramFacts, plain, faults))


class _FaultyValue(Exception):
    """A value of the wrong type."""


_RECORDS: tuple[type[Any], ...] = (ProgramFacts, LoaderFacts, HotLine, MemoryHolder, Synchronization)


def _dataclass_value(cls: type[Any], plain: Any, faults: list[str]) -> Any:
    if not isinstance(plain, Mapping):
        raise _FaultyValue
    values: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(cls).items():
        if name not in plain:
            continue
        try:
            values[name] = _value(hint, plain[name], name, faults)
        except _FaultyValue:
            faults.append(name)
    try:
        return cls(**values)
    except TypeError:
        # A member without a default is missing or faulty.
        raise _FaultyValue from None


def _value(hint: Any, plain: Any, name: str, faults: list[str]) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        (wanted,) = (each for each in arguments if each is not types.NoneType)
        return None if plain is None else _value(wanted, plain, name, faults)
    if origin is Sequence:
        return _items(arguments[0], plain, name, faults)
    if origin is Mapping:
        return _texts(plain)
    if hint in _RECORDS:
        return _dataclass_value(hint, plain, faults)
    if hint is StepPhase:
        return _phase(plain)
    if hint is str and isinstance(plain, str):
        return plain[:_MAX_TEXT]
    if hint is bool and isinstance(plain, bool):
        return plain
    if hint in (int, float) and isinstance(plain, int | float) and not isinstance(plain, bool):
        return _number(hint, plain)
    raise _FaultyValue


def _items(hint: Any, plain: Any, name: str, faults: list[str]) -> tuple[Any, ...]:
    if not isinstance(plain, list | tuple):
        raise _FaultyValue
    found = []
    for item in plain[:_MAX_ITEMS]:
        try:
            found.append(_value(hint, item, name, faults))
        except _FaultyValue:
            faults.append(name)
    return tuple(found)


def _texts(plain: Any) -> dict[str, str]:
    if not isinstance(plain, Mapping):
        raise _FaultyValue
    items = list(plain.items())[:_MAX_ITEMS]
    if not all(isinstance(value, str) for _, value in items):
        raise _FaultyValue
    return {key[:_MAX_TEXT]: value[:_MAX_TEXT] for key, value in items}


def _number(hint: type[Any], plain: float) -> float:
    # No count, time or size is negative, and NaN is in no range.
    if not 0 <= plain <= 2**63:
        raise _FaultyValue
    if hint is int:
        if plain != int(plain):
            raise _FaultyValue
        return int(plain)
    return float(plain)


def _phase(plain: Any) -> StepPhase:
    """Return a phase from its number or its name."""
    if isinstance(plain, str):
        found = StepPhase.__members__.get(plain.upper())
        if found is not None:
            return found
    elif isinstance(plain, int) and not isinstance(plain, bool) and 0 <= plain < len(StepPhase):
        return StepPhase(plain)
    raise _FaultyValue

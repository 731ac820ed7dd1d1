"""What an instance type is and costs: the shipped table, with what the home folder's catalog.toml says laid over it.

["ml.m5.large"]
on_demand_usd = 0.05
spot_usd = 0.01

["ml.my-workstation"]
cpus = 32
memory_gib = 128
gpus = 2
"""

import dataclasses
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.engines.instance_types import GIB_PER_CPU, cpus_of, shipped
from trainyard.foundation.errors import InvalidRequest

SPOT_SHARE = 0.3  # of the price on demand, unless the catalog says otherwise
USD_PER_CPU = 0.06  # of a type whose price is not known

_PREFIX = "ml."
_NUMBERS = ("cpus", "memory_gib", "gpus", "on_demand_usd", "spot_usd")


@dataclass(frozen=True, slots=True)
class InstanceType:
    """What a job that names this type asks for. None is all that the machine has; prices are for an hour."""

    name: str
    cpus: float | None
    memory_gib: float | None
    gpus: int | None
    on_demand_usd: float
    spot_usd: float
    is_derived: bool = False  # from the rules of names, because nothing is known of it

    def price_usd(self, *, is_spot: bool) -> float:
        """What an hour of one instance costs."""
        return self.spot_usd if is_spot else self.on_demand_usd


# The SDK's names for "on this machine".
LOCAL = InstanceType("local", None, None, 0, 0.0, 0.0)
LOCAL_GPU = InstanceType("local_gpu", None, None, None, 0.0, 0.0)


class Catalog:
    """The instance types of one yard, by name."""

    def __init__(self, types: Iterable[InstanceType]) -> None:
        self._types = {each.name: each for each in types}

    @classmethod
    def read(cls, file: Path) -> "Catalog":
        """The shipped types, changed and added to by `file` where it exists; InvalidRequest when it is wrong."""
        types = {each.name: each for each in _shipped()}
        for name, values in _load(file).items():
            types[name] = _changed(name, values, known=types.get(name), file=file)
        return cls(types.values())

    def __iter__(self) -> Iterator[InstanceType]:
        return iter(self._types.values())

    def __getitem__(self, name: str) -> InstanceType:
        """The type of that name.

        A type that nothing is known of but whose family and size tell CPUs and memory is derived from those;
        InvalidRequest for any other.
        """
        found = self._types.get(name) or _derived(name)
        if found is None:
            raise InvalidRequest(
                f'"{name}" is not an instance type this yard knows; name another, or describe it in the home '
                "folder's catalog.toml."
            )
        return found


def _shipped() -> Iterable[InstanceType]:
    yield LOCAL
    yield LOCAL_GPU
    for name, facts in shipped():
        spot = round(facts.usd * SPOT_SHARE, 4)
        yield InstanceType(_PREFIX + name, facts.cpus, facts.memory_gib, facts.gpus, facts.usd, spot)


def _derived(name: str) -> InstanceType | None:
    family, _, size = name.removeprefix(_PREFIX).partition(".")
    cpus, gib_per_cpu = cpus_of(size), GIB_PER_CPU.get(family[:1])
    if not name.startswith(_PREFIX) or cpus is None or gib_per_cpu is None or not family[1:2].isdigit():
        return None
    usd = round(cpus * USD_PER_CPU, 4)
    return InstanceType(name, cpus, cpus * gib_per_cpu, 0, usd, round(usd * SPOT_SHARE, 4), is_derived=True)


def _load(file: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{file} is not valid TOML: {error}.") from error


def _changed(name: str, values: object, *, known: InstanceType | None, file: Path) -> InstanceType:
    if not isinstance(values, dict):
        raise InvalidRequest(f'{file}: "{name}" is not a table; write ["{name}"] above its values.')
    for key, value in values.items():
        if key not in _NUMBERS:
            raise InvalidRequest(f'{file}: "{name}" has "{key}", which is none of {", ".join(_NUMBERS)}.')
        if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
            raise InvalidRequest(f'{file}: {key} of "{name}" is {value!r}, which is not a number from 0 on.')
    if known is not None:
        return _with_spot(dataclasses.replace(known, **values), values)
    if "cpus" not in values or "memory_gib" not in values:
        raise InvalidRequest(f'{file}: "{name}" is a new type and needs cpus and memory_gib.')
    new = InstanceType(name, None, None, 0, values["cpus"] * USD_PER_CPU, 0.0)
    return _with_spot(dataclasses.replace(new, **values), values)


def _with_spot(changed: InstanceType, values: Mapping[str, Any]) -> InstanceType:
    """Who sets one price only means the other to go with it."""
    if "spot_usd" in values:
        return changed
    return dataclasses.replace(changed, spot_usd=round(changed.on_demand_usd * SPOT_SHARE, 4))

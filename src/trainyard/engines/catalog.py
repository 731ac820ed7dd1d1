"""What an instance type has and costs: the shipped table, with the changes of the home folder's catalog.toml.

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

from trainyard.engines.instance_types import GIB_PER_CPU, cpus_of, shipped_types
from trainyard.foundation.errors import InvalidRequest

# The spot price as a fraction of the on-demand price, unless catalog.toml sets it.
SPOT_PRICE_FRACTION = 0.3
# The hourly price of a type whose price is not known.
USD_PER_CPU = 0.06

_PREFIX = "ml."
_PRICES = ("on_demand_usd", "spot_usd")
_NUMBERS = ("cpus", "memory_gib", "gpus", *_PRICES)


@dataclass(frozen=True, slots=True)
class InstanceType:
    """What an instance of this type gets. None means all that the machine has; prices are per hour.

    A derived type is unknown; its resources follow from its name. The prices are approximations unless they are set.
    """

    name: str
    cpus: float | None
    memory_gib: float | None
    gpus: int | None
    on_demand_usd: float
    spot_usd: float
    is_derived: bool = False
    has_set_price: bool = False

    def price_usd(self, *, is_spot: bool) -> float:
        """Return the price of one instance for an hour."""
        return self.spot_usd if is_spot else self.on_demand_usd


# The SDK's names for instances on this machine.
LOCAL = InstanceType("local", None, None, 0, 0.0, 0.0)
LOCAL_GPU = InstanceType("local_gpu", None, None, None, 0.0, 0.0)


class Catalog:
    """The instance types of one yard, by name."""

    def __init__(self, types: Iterable[InstanceType]) -> None:
        self._types = {each.name: each for each in types}

    @classmethod
    def read(cls, file: Path) -> "Catalog":
        """Load the shipped types with the changes of `file`, if it exists. Raises InvalidRequest if it is invalid."""
        types = {each.name: each for each in _shipped_types()}
        for name, values in _load(file).items():
            types[name] = _override_type(name, values, known=types.get(name), file=file)
        return cls(types.values())

    def __iter__(self) -> Iterator[InstanceType]:
        return iter(self._types.values())

    def __getitem__(self, name: str) -> InstanceType:
        """Return the type of that name.

        An unknown type is derived from its name if family and size tell its CPUs and memory. Raises InvalidRequest
        otherwise.
        """
        found = self._types.get(name) or _derive_type(name)
        if found is None:
            raise InvalidRequest(
                f'"{name}" is not an instance type this yard knows; choose another, or describe it in the home '
                "folder's catalog.toml."
            )
        return found


def _shipped_types() -> Iterable[InstanceType]:
    yield LOCAL
    yield LOCAL_GPU
    for name, facts in shipped_types():
        spot = round(facts.usd * SPOT_PRICE_FRACTION, 4)
        yield InstanceType(_PREFIX + name, facts.cpus, facts.memory_gib, facts.gpus, facts.usd, spot)


def _derive_type(name: str) -> InstanceType | None:
    family, _, size = name.removeprefix(_PREFIX).partition(".")
    cpus, gib_per_cpu = cpus_of(size), GIB_PER_CPU.get(family[:1])
    if not name.startswith(_PREFIX) or cpus is None or gib_per_cpu is None or not family[1:2].isdigit():
        return None
    usd = round(cpus * USD_PER_CPU, 4)
    return InstanceType(name, cpus, cpus * gib_per_cpu, 0, usd, round(usd * SPOT_PRICE_FRACTION, 4), is_derived=True)


def _load(file: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{file} is not valid TOML: {error}.") from error


def _override_type(name: str, values: object, *, known: InstanceType | None, file: Path) -> InstanceType:
    if not isinstance(values, dict):
        raise InvalidRequest(f'{file}: "{name}" is not a table; write ["{name}"] above its values.')
    for key, value in values.items():
        if key not in _NUMBERS:
            raise InvalidRequest(f'{file}: "{name}" has the unknown key "{key}"; the keys are {", ".join(_NUMBERS)}.')
        if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
            raise InvalidRequest(f'{file}: {key} of "{name}" is {value!r}, which is not a number of 0 or more.')
    values = {**values, "has_set_price": any(price in values for price in _PRICES)}
    if known is not None:
        return _with_spot(dataclasses.replace(known, **values), values)
    if "cpus" not in values or "memory_gib" not in values:
        raise InvalidRequest(f'{file}: "{name}" is a new type and needs cpus and memory_gib.')
    new = InstanceType(name, None, None, 0, values["cpus"] * USD_PER_CPU, 0.0)
    return _with_spot(dataclasses.replace(new, **values), values)


def _with_spot(changed: InstanceType, values: Mapping[str, Any]) -> InstanceType:
    """Derive the spot price from the on-demand price unless it is set."""
    if "spot_usd" in values:
        return changed
    return dataclasses.replace(changed, spot_usd=round(changed.on_demand_usd * SPOT_PRICE_FRACTION, 4))

"""The spec of an instance as a file: written once by the yard, read by the agent at any later time.

Reading is strict. An agent that ignored an unknown member, or guessed a missing one, would not run what was asked for.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from trainyard.foundation.errors import Corrupt, InvalidRequest
from trainyard.foundation.files import replace_file
from trainyard.link.contract import PROTOCOL, InstanceSpec
from trainyard.link.folders import InstanceFolder

# The last two versions of the protocol.
SUPPORTED_PROTOCOLS = range(max(1, PROTOCOL - 1), PROTOCOL + 1)

D = TypeVar("D")


def write_spec(folder: Path, spec: InstanceSpec) -> None:
    """Write the spec into an instance's folder, whole or not at all."""
    replace_file(InstanceFolder(folder).spec, json.dumps(dataclasses.asdict(spec), indent=1).encode())


def read_spec(folder: Path) -> InstanceSpec:
    """Read the spec of an instance.

    Raises InvalidRequest if its protocol is not supported here, Corrupt if it is not a complete spec.
    """
    file = InstanceFolder(folder).spec
    try:
        values = json.loads(file.read_bytes())
    except ValueError as error:
        raise Corrupt(f"{file} is damaged: {error}.") from error
    protocol = values.get("protocol") if isinstance(values, dict) else None
    if type(protocol) is int and protocol not in SUPPORTED_PROTOCOLS:
        raise InvalidRequest(
            f"{file} is written in protocol {protocol}; this version of Trainyard supports "
            f"{' and '.join(map(str, SUPPORTED_PROTOCOLS))}."
        )
    try:
        return _parse_dataclass(InstanceSpec, values, "")
    except _Mismatch as error:
        raise Corrupt(f"{file} is not the spec of an instance: {error}.") from error


class _Mismatch(Exception):
    """A value is not of the type it is declared with."""


def _parse_dataclass(cls: type[D], values: object, where: str) -> D:
    if not isinstance(values, dict):
        raise _Mismatch(f"{where or 'it'} is not an object")
    hints = get_type_hints(cls)
    unknown, needed = values.keys() - hints.keys(), _required_fields(cls) - values.keys()
    if unknown or needed:
        wrong = f"knows no {', '.join(sorted(unknown))}" if unknown else f"lacks {', '.join(sorted(needed))}"
        raise _Mismatch(f"{where or 'it'} {wrong}")
    return cls(
        **{name: _parse_value(hints[name], value, f"{where}.{name}".lstrip(".")) for name, value in values.items()}
    )


def _required_fields(cls: type[Any]) -> set[str]:
    missing = dataclasses.MISSING
    return {f.name for f in dataclasses.fields(cls) if f.default is missing and f.default_factory is missing}


def _parse_value(wanted: Any, value: object, where: str) -> Any:
    # Passed on as it is.
    if wanted is Any:
        return value
    origin, arguments = get_origin(wanted), get_args(wanted)
    if dataclasses.is_dataclass(wanted):
        return _parse_dataclass(wanted if isinstance(wanted, type) else type(wanted), value, where)
    if origin is UnionType:
        return None if value is None else _parse_value(arguments[0], value, where)
    if origin is Sequence and isinstance(value, list):
        return tuple(_parse_value(arguments[0], item, f"{where}[{number}]") for number, item in enumerate(value))
    if origin is Mapping and isinstance(value, dict):
        return {key: _parse_value(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if wanted is float and type(value) is int:
        return float(value)
    # `type is`, because True is an int to isinstance.
    if origin is None and type(value) is wanted:
        return value
    raise _Mismatch(f"{where} is {json.dumps(value)[:80]}, which is not of the declared type")

"""Settings as data: a frozen dataclass whose fields have a default and a help text.

A program declares one such dataclass, reads it once in its main, and passes it down. The documentation page is
generated from the table of fields.
"""

import dataclasses
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from trainyard.foundation.errors import InvalidRequest

S = TypeVar("S")

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def setting(default: Any, *, help: str) -> Any:  # noqa: A002 - reads as what it is
    """Declare one field of a settings class."""
    return dataclasses.field(default=default, metadata={"help": help})


@dataclasses.dataclass(frozen=True, slots=True)
class SettingRow:
    name: str
    variable: str
    default: str
    help: str


def setting_rows(cls: type[Any], prefix: str) -> list[SettingRow]:
    """Return the table of a settings class for the documentation."""
    return [
        SettingRow(field.name, prefix + field.name.upper(), _default_text(field.default), field.metadata["help"])
        for field in dataclasses.fields(cls)
    ]


def _default_text(default: Any) -> str:
    return f"{default.total_seconds():g}s" if isinstance(default, timedelta) else str(default)


def read_settings(cls: type[S], *, file: Path | None, environment: Mapping[str, str], prefix: str) -> S:
    """Read the defaults, then the TOML file, then the environment.

    Raises InvalidRequest, which names it, for an unknown setting or an invalid value.
    """
    types = get_type_hints(cls)
    values: dict[str, Any] = {}
    if file is not None and file.exists():
        for name, value in _load_toml(file).items():
            if name not in types:
                raise InvalidRequest(f'{file} has a setting "{name}" that does not exist; see docs/settings.md.')
            values[name] = _convert(value, types[name], f"{file}: {name}")
    for name in types:
        variable = prefix + name.upper()
        if variable in environment:
            values[name] = _convert(environment[variable], types[name], variable)
    return cls(**values)


def _load_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequest(f"{file} is not valid TOML: {error}.") from error


def parse_duration(text: str) -> timedelta:
    """Parse `15s`, `250ms`, `2h`."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text[len(number) :]
    try:
        return timedelta(seconds=float(number) * _UNITS[unit])
    except (KeyError, ValueError) as error:
        raise InvalidRequest(f'"{text}" is not a duration; write it like 250ms, 15s, 10m, 2h or 1d.') from error


def _convert(value: Any, wanted: Any, where: str) -> Any:
    try:
        if wanted is timedelta:
            return parse_duration(str(value))
        if wanted is bool:
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[str(value).lower()]
        if wanted is int:
            return int(value)
        if wanted is float:
            return float(value)
        if wanted is Path:
            return Path(value).expanduser()
        return str(value)
    except (KeyError, ValueError) as error:
        raise InvalidRequest(f'{where} is "{value}", which is not a {wanted.__name__}.') from error

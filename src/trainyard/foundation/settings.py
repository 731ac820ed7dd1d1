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

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", Path: "a path", str: "a text"}
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def setting(default: Any, *, help: str, is_secret: bool = False) -> Any:  # noqa: A002 - reads as what it is
    """Declare one field of a settings class. The value of a secret may contain a password, so nobody is shown it."""
    return dataclasses.field(default=default, metadata={"help": help, "is_secret": is_secret})


@dataclasses.dataclass(frozen=True, slots=True)
class SettingRow:
    name: str
    variable: str
    default: str
    help: str
    is_secret: bool = False


def setting_rows(cls: type[Any], prefix: str) -> list[SettingRow]:
    """Return the table of a settings class for the documentation."""
    return [
        SettingRow(
            field.name,
            prefix + field.name.upper(),
            value_text(field.default),
            field.metadata["help"],
            field.metadata["is_secret"],
        )
        for field in dataclasses.fields(cls)
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class SettingValue:
    """The value of a setting as text, and its source: default, file, environment or command line."""

    name: str
    value: str
    source: str
    default: str
    variable: str
    help: str
    is_secret: bool = False


def setting_values(
    cls: type[Any],
    *,
    file: Path | None,
    environment: Mapping[str, str],
    prefix: str,
    command_line: Mapping[str, Any] | None = None,
) -> list[SettingValue]:
    """Return all settings with their sources. Raises InvalidRequest as `read_settings` does."""
    given = command_line or {}
    settings = read_settings(cls, file=file, environment=environment, prefix=prefix)
    in_file = set(_load_toml(file)) if file is not None and file.exists() else set()
    return [
        SettingValue(
            row.name,
            value_text(given.get(row.name, getattr(settings, row.name))),
            _source(row, given, environment, in_file),
            row.default,
            row.variable,
            row.help,
            row.is_secret,
        )
        for row in setting_rows(cls, prefix)
    ]


def parse_setting(cls: type[Any], name: str, text: str) -> Any:
    """Return the value of a setting from text. Raises InvalidRequest for an unknown setting or an invalid value."""
    types = get_type_hints(cls)
    if name not in types:
        # Imported here: only a mistake needs it.
        from difflib import get_close_matches

        near = get_close_matches(name, types, 1)
        hint = f' Did you mean "{near[0]}"?' if near else ""
        raise InvalidRequest(f'There is no setting "{name}".{hint} `trainyard config list --all` lists them.')
    return _convert(text, types[name], name)


def value_text(value: Any) -> str:
    """Return a value as `parse_setting` reads it: a duration in its largest unit."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, timedelta):
        return str(value)
    seconds = value.total_seconds()
    unit = next((unit for unit in ("d", "h", "m", "s") if seconds and not seconds % _UNITS[unit]), "s")
    return f"{seconds / _UNITS[unit]:g}{unit}"


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


def _source(row: SettingRow, given: Mapping[str, Any], environment: Mapping[str, str], in_file: set[str]) -> str:
    if row.name in given:
        return "command line"
    return "environment" if row.variable in environment else "file" if row.name in in_file else "default"


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
        raise InvalidRequest(f'{where} is "{value}", which is not {_KINDS[wanted]}.') from error

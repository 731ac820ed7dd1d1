"""Converts values to plain JSON and back: dataclasses of strings, numbers, datetimes, enums, tuples and mappings.

A member with its default value is left out, and a missing one gets it, so that stored data stays small and data of
older versions can still be read.
"""

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from trainyard.foundation.clock import from_micros, to_micros
from trainyard.foundation.errors import Corrupt

V = TypeVar("V")

Reader = Callable[[Any], Any]


def to_plain(value: Any) -> Any:
    """Return a value that `json.dumps` accepts. Datetimes become integer UTC microseconds."""
    if dataclasses.is_dataclass(value):
        cls: Any = type(value)
        members = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        defaults = _defaults(cls)
        return {
            name: to_plain(item) for name, item in members.items() if name not in defaults or item != defaults[name]
        }
    if isinstance(value, datetime):
        return to_micros(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return value


def from_plain(cls: type[V], plain: Mapping[str, Any]) -> V:
    """Return the value that `to_plain` converted. Raises Corrupt if it cannot be of that class."""
    wanted: Any = cls
    try:
        return typing.cast(V, _reader(wanted)(plain))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Corrupt(f"A stored {cls.__name__} cannot be read: {error!r}.") from error


@cache
def _defaults(cls: Any) -> dict[str, Any]:
    found = {}
    for field in dataclasses.fields(cls):
        if field.default is not dataclasses.MISSING:
            found[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = field.default_factory()
    return found


@cache
def _reader(wanted: Any) -> Reader:
    """Return the function that converts plain JSON to a type; built once per type."""
    if dataclasses.is_dataclass(wanted):
        return _dataclass_reader(typing.cast(type[Any], wanted))
    if wanted is datetime:
        return from_micros
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return wanted
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        return _optional_reader(arguments)
    if origin is tuple:
        item = _reader(arguments[0])
        return lambda plain: tuple(item(each) for each in plain)
    if origin is Sequence:
        item = _reader(arguments[0])
        return lambda plain: [item(each) for each in plain]
    if origin is Mapping:
        key, value = map(_reader, arguments)
        return lambda plain: {key(name): value(each) for name, each in plain.items()}
    return _identity


def _dataclass_reader(cls: type[Any]) -> Reader:
    readers = {name: _reader(hint) for name, hint in typing.get_type_hints(cls).items()}

    def read(plain: Any) -> Any:
        return cls(**{name: readers[name](item) for name, item in plain.items()})

    return read


def _optional_reader(arguments: tuple[Any, ...]) -> Reader:
    wanted = [argument for argument in arguments if argument is not type(None)]
    if len(wanted) > 1:
        # Only JSON's own types, such as float | str, can be told apart.
        return _identity
    read = _reader(wanted[0])
    return lambda plain: None if plain is None else read(plain)


def _identity(plain: Any) -> Any:
    return plain

"""Events as they are written in a file: which of their members are read, and what is accepted in their place."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

_ABSENT = -1


class EventArguments(Struct, gc=False):
    """The arguments that are read. Versions of torch differ in the case of some names."""

    external_id: int = field(name="External id", default=0)
    old_external_id: int = field(name="external id", default=0)
    dimensions: Raw = field(name="Input Dims", default=Raw(b""))
    old_dimensions: Raw = field(name="Input dims", default=Raw(b""))
    types: Raw = field(name="Input type", default=Raw(b""))
    inputs: Raw = field(name="Concrete Inputs", default=Raw(b""))
    correlation: int = 0
    # Of what a device did.
    device: int = _ABSENT
    stream: int = _ABSENT
    grid: Raw = Raw(b"")
    block: Raw = Raw(b"")
    registers: int = field(name="registers per thread", default=_ABSENT)
    shared_memory: int = field(name="shared memory", default=_ABSENT)
    blocks_per_sm: float = field(name="blocks per SM", default=math.nan)
    occupancy: float = field(name="est. achieved occupancy %", default=math.nan)
    copied: int = field(name="bytes", default=_ABSENT)
    # Of memory.
    change: int = field(name="Bytes", default=0)
    device_type: int = field(name="Device Type", default=0)
    device_id: int = field(name="Device Id", default=_ABSENT)
    address: int = field(name="Addr", default=0)
    allocated: int = field(name="Total Allocated", default=_ABSENT)
    reserved: int = field(name="Total Reserved", default=_ABSENT)
    # Of collectives.
    collective: str = field(name="Collective name", default="")
    input_elements: int = field(name="In msg nelems", default=0)
    output_elements: int = field(name="Out msg nelems", default=0)
    group_size: int = field(name="Group size", default=0)
    group: str = field(name="Process Group Name", default="")
    data_type: str = field(name="dtype", default="")
    # Of steps that a program marks for TensorFlow's profiler.
    step: int | str = field(name="step_num", default="")
    # Of the names of processes and threads, and of AWS's timelines.
    name: str = ""
    labels: str = ""
    epoch_us: int = field(name="start_time_since_epoch_in_micros", default=0)


class EventRecord(Struct, gc=False):
    """One event. Members that are not read cost their parsing only."""

    ph: str = ""
    name: str = ""
    ts: float = math.nan  # microseconds
    dur: float = 0.0
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    args: EventArguments | None = None


_RECORD = msgspec.json.Decoder(EventRecord)
_RECORDS = msgspec.json.Decoder(list[EventRecord])
_RECORD_FIELDS = msgspec.structs.fields(EventRecord)
_ARGUMENT_FIELDS = msgspec.structs.fields(EventArguments)
# What kineto has written for numbers that JSON does not have, and paths of Windows in strings.
_NO_NUMBER = re.compile(r"(?<=[:,\[])(\s*)-?(?:nan|inf)\b", re.IGNORECASE)
_LONE_BACKSLASH = re.compile(r'\\(?![\\"/bfnrtu])')


def decode_records(chunk: bytes) -> list[EventRecord] | None:
    """Decode events with commas between them; None if any of them cannot be decoded as it is."""
    try:
        return _RECORDS.decode(b"[" + chunk + b"]")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def decode_record(text: str) -> EventRecord | None:
    """Decode one event, mended if need be; None if that is not possible."""
    try:
        return _RECORD.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    for candidate in (text, _LONE_BACKSLASH.sub(r"\\\\", _NO_NUMBER.sub(r"\1null", text))):
        try:
            document = json.loads(candidate, strict=False)
        except (ValueError, RecursionError):
            continue
        return _tolerant_record(document)
    return None


def _tolerant_record(document: object) -> EventRecord | None:
    """Return an event without the members that have an unexpected type."""
    if not isinstance(document, dict):
        return None
    values = _fitting(document, _RECORD_FIELDS)
    arguments = document.get("args")
    if isinstance(arguments, dict):
        values["args"] = EventArguments(**_fitting(arguments, _ARGUMENT_FIELDS))
    return EventRecord(**values)


def _fitting(document: Mapping[str, object], fields: tuple[msgspec.structs.FieldInfo, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in fields:
        value = document.get(each.encode_name)
        if value is None or each.name == "args":
            continue
        if each.type is Raw:
            found[each.name] = Raw(json.dumps(value).encode())
            continue
        try:
            found[each.name] = msgspec.convert(_encodable(value), each.type, strict=False)
        except (msgspec.ValidationError, OverflowError):
            continue
    return found


def _encodable(value: object) -> object:
    """Replace parts of characters, which files with damaged text have."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value

"""Which tensors are in a file of `torch.save`, without loading it.

Such a file is a zip archive that begins with a pickle of everything but the contents of tensors. Loading a pickle runs
whatever it names, so this follows its instructions by itself: it calls nothing and imports nothing, and what is no
tensor, number or text becomes a mere name.
"""

import math
import pickletools
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from trainyard.server.dashboard.pages.files.arrays import MAX_SHOWN
from trainyard.server.services.contract import Shape

# A checkpoint with ten thousand tensors needs about a megabyte.
MAX_PICKLE_BYTES = 4 * 1024 * 1024
_MAX_INSTRUCTIONS = 600_000
_MAX_VISITS, _MAX_DEPTH, _MAX_METADATA = 100_000, 12, 30
_PICKLE = b"/data.pkl"
_MARK = object()
_TENSOR, _PARAMETER = "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter"
_DICTIONARY = "collections OrderedDict"
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_VALUES = frozenset(
    {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
)
_SIZES = {
    "DoubleStorage": 8,
    "FloatStorage": 4,
    "HalfStorage": 2,
    "BFloat16Storage": 2,
    "LongStorage": 8,
    "IntStorage": 4,
    "ShortStorage": 2,
    "CharStorage": 1,
    "ByteStorage": 1,
    "BoolStorage": 1,
}


@dataclass(slots=True)
class _Object:
    """Something that the pickle would create: the name of its class or function, and its state."""

    name: str
    state: Any = None


@dataclass(frozen=True, slots=True)
class _TorchTensor:
    storage: str
    shape: tuple[int, ...] = field(default=())


class _NoCheckpoint(Exception):
    """The pickle is damaged, or of no kind that torch writes."""


def pickle_start(head: bytes) -> int | None:
    """Return where the pickle of a file of torch.save begins; None for any other file."""
    if len(head) < 30 or not head.startswith(b"PK\x03\x04"):
        return None
    name_length, extra_length = struct.unpack_from("<HH", head, 26)
    if not head[30 : 30 + name_length].endswith(_PICKLE):
        return None
    return 30 + int(name_length) + int(extra_length)


def torch_tensors(data: bytes) -> Shape | None:
    """Return the tensors that a pickle names, and its numbers and texts; None if it is none of torch's."""
    try:
        found = list(_walk(_follow(data)))
    except (_NoCheckpoint, ValueError, IndexError, TypeError, AttributeError, struct.error):
        return None
    tensors = [_tensor_shape(name, value) for name, value in found if isinstance(value, _TorchTensor)]
    others = {name: str(value)[:200] for name, value in found if not isinstance(value, _TorchTensor)}
    return {
        "tensors": tensors[:MAX_SHOWN],
        "total": len(tensors),
        "elements": sum(math.prod(each["shape"]) for each in tensors),
        "metadata": dict(list(others.items())[:_MAX_METADATA]),
    }


def _follow(data: bytes) -> Any:
    """Follow the instructions of a pickle, and return what it describes."""
    stack, memo = list[Any](), dict[int, Any]()
    for number, (instruction, argument, _) in enumerate(pickletools.genops(data)):
        name = instruction.name
        if number > _MAX_INSTRUCTIONS:
            break
        if name == "STOP":
            return stack.pop()
        if name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _VALUES:
            stack.append(argument)
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[int(str(argument))] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[int(str(argument))])
        elif name not in ("PROTO", "FRAME"):
            _change(stack, name, argument)
    raise _NoCheckpoint


def _change(stack: list[Any], name: str, argument: object) -> None:
    """Follow one instruction that makes something of what lies on the stack."""
    match name:
        case "MARK":
            stack.append(_MARK)
        case "EMPTY_DICT":
            stack.append({})
        case "EMPTY_LIST" | "EMPTY_SET":
            stack.append([])
        case "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
            members = _above_mark(stack) if name == "TUPLE" else [stack.pop() for _ in range(int(name[-1]))][::-1]
            stack.append(tuple(members))
        case "APPEND" | "APPENDS" | "ADDITEMS":
            added = [stack.pop()] if name == "APPEND" else _above_mark(stack)
            if isinstance(stack[-1], list):
                stack[-1].extend(added)
        case "SETITEM" | "SETITEMS":
            added = [stack.pop(), stack.pop()][::-1] if name == "SETITEM" else _above_mark(stack)
            if isinstance(stack[-1], dict):
                stack[-1].update((_key(key), value) for key, value in zip(added[::2], added[1::2], strict=True))
        case "GLOBAL":
            stack.append(_Object(str(argument)))
        case "STACK_GLOBAL":
            attribute, module = stack.pop(), stack.pop()
            stack.append(_Object(f"{module} {attribute}"))
        case "BINPERSID":
            storage = stack.pop()
            # ("storage", type, key, device, number of elements)
            stack.append(storage[1])
        case "REDUCE" | "NEWOBJ":
            arguments, made = stack.pop(), stack.pop()
            stack.append(_build_tensor(made, arguments))
        case "BUILD":
            state = stack.pop()
            if isinstance(stack[-1], _Object):
                stack[-1] = stack[-1] if stack[-1].state is not None else _fill(stack[-1], state)
        case _:
            raise _NoCheckpoint


def _build_tensor(made: Any, arguments: Any) -> Any:
    if not isinstance(made, _Object) or not isinstance(arguments, tuple):
        raise _NoCheckpoint
    if made.name == _TENSOR:
        return _TorchTensor(arguments[0].name, tuple(int(side) for side in arguments[2]))
    if made.name == _PARAMETER:
        return arguments[0]
    return {} if made.name == _DICTIONARY else _Object(made.name)


def _fill(made: _Object, state: Any) -> _Object:
    made.state = state
    return made


def _above_mark(stack: list[Any]) -> list[Any]:
    members = list[Any]()
    while (top := stack.pop()) is not _MARK:
        members.append(top)
    return members[::-1]


def _key(key: Any) -> str:
    return key[:300] if isinstance(key, str) else str(key)[:300] if isinstance(key, int | float) else "…"


def _walk(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the tensors, numbers and texts in a value by their names, as many parts as the limit allows.

    The same part may occur any number of times, so its members count each time.
    """
    waiting, left = [("", value, 0)], _MAX_VISITS
    while waiting:
        name, found, depth = waiting.pop()
        if isinstance(found, _TorchTensor | str | int | float):
            yield name, found
        elif depth < _MAX_DEPTH:
            members = list(islice(_members(found), left))
            left -= len(members)
            waiting += [(f"{name}.{key}" if name else key, each, depth + 1) for key, each in reversed(members)]


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    match value:
        case dict():
            yield from value.items()
        case list() | tuple():
            yield from ((str(number), each) for number, each in enumerate(value))
        case _Object(state=dict()):
            yield from value.state.items()


def _tensor_shape(name: str, tensor: _TorchTensor) -> Shape:
    kind = tensor.storage.rpartition(" ")[2]
    size = _SIZES.get(kind)
    return {
        "name": name[:500],
        "dtype": kind.removesuffix("Storage").lower(),
        "shape": list(tensor.shape),
        "bytes": math.prod(tensor.shape) * size if size else None,
    }

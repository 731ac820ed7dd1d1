"""Which operation of a REST service a method, a path and a query mean, compiled from the URIs of its model."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from trainyard.wire.fault import Fault
from trainyard.wire.http import HttpRequest
from trainyard.wire.percent import decode_parameter, decode_path

if TYPE_CHECKING:
    from botocore.model import OperationModel, ServiceModel

_LABEL = re.compile(r"\{(\w+)(\+?)\}")

_Sign = tuple[str, str]  # where, and the name there: ("querystring", "uploadId"), ("header", "x-amz-copy-source")


@dataclass(frozen=True, slots=True)
class RestMatch:
    operation: "OperationModel"
    labels: Mapping[str, str]


class RestTable:
    """The operations of one service by path, method, and sub-resource: the `acl` of `GET /bucket?acl`."""

    def __init__(self, service: "ServiceModel") -> None:
        groups: dict[str, dict[tuple[str, str], list[_Candidate]]] = {}
        for name in service.operation_names:
            candidate = _candidate(service.operation_model(name))
            key = candidate.operation.http["method"], candidate.resource
            groups.setdefault(candidate.template, {}).setdefault(key, []).append(candidate)
        self._templates = [
            _Template(_pattern(template), {key: _Group(of) for key, of in groups[template].items()})
            for template in sorted(groups, key=_generality)
        ]
        every = chain.from_iterable(of for by_key in groups.values() for of in by_key.values())
        self._resources = frozenset(candidate.resource for candidate in every) - {""}

    def match(self, request: HttpRequest, path: str) -> RestMatch | None:
        """The operation and its labels; None where the service has no such path, method or sub-resource."""
        for template in self._templates:
            found = template.pattern.fullmatch(path)
            if found is not None:
                parameters = _raw_parameters(request.query) if request.query else {}
                group = template.groups.get((request.method, self._resource(parameters)))
                operation = group.choose(parameters, request) if group is not None else None
                if operation is None:
                    return None
                return RestMatch(operation, {name: decode_path(text) for name, text in found.groupdict().items()})
        return None

    def _resource(self, parameters: Mapping[str, str]) -> str:
        named = [name for name in parameters if name in self._resources]
        if len(named) > 1:
            raise Fault(
                "InvalidArgument",
                f"Conflicting query string parameters: {', '.join(sorted(named))}",
                members={"ArgumentName": "ResourceType", "ArgumentValue": named[0]},
            )
        return named[0] if named else ""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An operation as its URI tells it apart: by a sub-resource, values that must be given, members it needs."""

    operation: "OperationModel"
    template: str
    resource: str
    values: tuple[tuple[str, str], ...]
    needs: frozenset[_Sign]
    takes: frozenset[_Sign]
    is_retired: bool
    is_for_express: bool


@dataclass(frozen=True, slots=True)
class _Template:
    pattern: re.Pattern[str]
    groups: "Mapping[tuple[str, str], _Group]"


class _Group:
    """Operations with the same path, method and sub-resource, told apart by what the request carries.

    UploadPart is a PutObject with `partNumber` and `uploadId`; with `x-amz-copy-source` it is UploadPartCopy.
    """

    def __init__(self, candidates: "Sequence[_Candidate]") -> None:
        self._values = candidates[0].values
        # A sub-resource names its one operation whatever else the request lacks, which validation then tells.
        is_told = len(candidates) == 1 and candidates[0].resource
        self._signs = [] if is_told else sorted({sign for candidate in candidates for sign in candidate.needs})
        self._choices = [
            _best(candidates, frozenset(sign for bit, sign in enumerate(self._signs) if mask >> bit & 1))
            for mask in range(1 << len(self._signs))
        ]

    def choose(self, parameters: Mapping[str, str], request: HttpRequest) -> "OperationModel | None":
        if any(parameters.get(name) != value for name, value in self._values):
            return None
        mask = 0
        for bit, (where, name) in enumerate(self._signs):
            if name in (parameters if where == "querystring" else request.headers):
                mask |= 1 << bit
        return self._choices[mask]


def _best(candidates: "Sequence[_Candidate]", present: frozenset[_Sign]) -> "OperationModel | None":
    """The one that takes most of what is present, then the one that lacks least of what it needs.

    Where both could be meant, the retired twin of an operation and the one for directory buckets give way. None where
    nothing at all speaks for the best: a bare POST to a key completes no upload.
    """
    best = max(
        candidates,
        key=lambda it: (
            len(it.takes & present),
            -len(it.needs - present),
            len(it.needs),
            not it.is_retired,
            not it.is_for_express,
        ),
    )
    return None if best.needs and not best.resource and not best.needs & present else best.operation


def _candidate(operation: "OperationModel") -> _Candidate:
    template, _, query = operation.http["requestUri"].partition("?")
    literals = [piece.partition("=") for piece in query.split("&") if piece and not piece.startswith("x-id=")]
    needs, takes = _signs(operation)
    context = operation.static_context_parameters
    return _Candidate(
        operation=operation,
        template=template,
        resource=literals[0][0] if literals else "",
        values=tuple((name, value) for name, equals, value in literals if equals),
        needs=frozenset(needs),
        takes=frozenset(takes),
        is_retired=bool(operation.deprecated),
        is_for_express=any(it.name == "UseS3ExpressControlEndpoint" for it in context),
    )


def _signs(operation: "OperationModel") -> tuple[set[_Sign], set[_Sign]]:
    """The query parameters and headers that an operation needs, and those that it takes."""
    shape = operation.input_shape
    if shape is None:
        return set(), set()
    takes = {
        name: (member.serialization["location"], member.serialization["name"])
        for name, member in shape.members.items()
        if member.serialization.get("location") in ("querystring", "header")
    }
    return {takes[name] for name in shape.required_members if name in takes}, set(takes.values())


def _generality(template: str) -> tuple[bool, int]:
    return "{" in template, len(template)


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile("".join(_pattern_pieces(template)) or "/?", re.DOTALL)


def _pattern_pieces(template: str) -> Iterator[str]:
    end = 0
    for label in _LABEL.finditer(template):
        yield re.escape(template[end : label.start()])
        yield f"(?P<{label.group(1)}>{'.+' if label.group(2) else '[^/]*'})"
        end = label.end()
    yield re.escape(template[end:].rstrip("/"))
    if not template.endswith("+}"):
        yield "/?"


def _raw_parameters(query: str) -> dict[str, str]:
    pairs = (piece.partition("=") for piece in query.split("&") if piece)
    return {decode_parameter(name): decode_parameter(value) for name, _, value in pairs}

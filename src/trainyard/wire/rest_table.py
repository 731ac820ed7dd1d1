"""Matches method, path and query to the operations of a REST service, compiled from the URIs of its model."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from trainyard.wire.addressing import decode_parameter, decode_path
from trainyard.wire.fault import Fault
from trainyard.wire.http import HttpRequest

if TYPE_CHECKING:
    from botocore.model import OperationModel, ServiceModel

_LABEL = re.compile(r"\{(\w+)(\+?)\}")

# A location and a name in it: ("querystring", "uploadId"), ("header", "x-amz-copy-source").
_Binding = tuple[str, str]


@dataclass(frozen=True, slots=True)
class RestMatch:
    operation: "OperationModel"
    labels: Mapping[str, str]


class RestTable:
    """The operations of one service by path, method and sub-resource, such as the `acl` of `GET /bucket?acl`."""

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
        """Return the operation and its labels; None if the service has no such path, method or sub-resource."""
        for template in self._templates:
            match = template.pattern.fullmatch(path)
            if match is not None:
                parameters = _raw_parameters(request.query) if request.query else {}
                group = template.groups.get((request.method, self._resource(parameters)))
                operation = group.choose(parameters, request) if group is not None else None
                if operation is None:
                    return None
                return RestMatch(operation, {name: decode_path(text) for name, text in match.groupdict().items()})
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
    """An operation and what distinguishes its URI: a sub-resource, required values, required members."""

    operation: "OperationModel"
    template: str
    resource: str
    values: tuple[tuple[str, str], ...]
    needs: frozenset[_Binding]
    takes: frozenset[_Binding]
    is_retired: bool
    is_for_express: bool


@dataclass(frozen=True, slots=True)
class _Template:
    pattern: re.Pattern[str]
    groups: "Mapping[tuple[str, str], _Group]"


class _Group:
    """Operations with the same path, method and sub-resource. Query parameters and headers distinguish them.

    UploadPart is a PutObject with `partNumber` and `uploadId`; with `x-amz-copy-source` it is UploadPartCopy.
    """

    def __init__(self, candidates: "Sequence[_Candidate]") -> None:
        self._values = candidates[0].values
        # A sub-resource with one operation selects it even if required members are missing; validation reports those.
        is_unambiguous = len(candidates) == 1 and candidates[0].resource
        self._bindings = (
            [] if is_unambiguous else sorted({binding for candidate in candidates for binding in candidate.needs})
        )
        self._choices = [
            _best_match(candidates, frozenset(binding for bit, binding in enumerate(self._bindings) if mask >> bit & 1))
            for mask in range(1 << len(self._bindings))
        ]

    def choose(self, parameters: Mapping[str, str], request: HttpRequest) -> "OperationModel | None":
        if any(parameters.get(name) != value for name, value in self._values):
            return None
        mask = 0
        for bit, (where, name) in enumerate(self._bindings):
            if name in (parameters if where == "querystring" else request.headers):
                mask |= 1 << bit
        return self._choices[mask]


def _best_match(candidates: "Sequence[_Candidate]", present: frozenset[_Binding]) -> "OperationModel | None":
    """Return the operation that takes most of what is present, then the one with the fewest missing members.

    Deprecated operations and those for directory buckets lose ties. None if no required member of the best one is
    present: a bare POST to a key does not complete an upload.
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
    needs, takes = _bindings(operation)
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


def _bindings(operation: "OperationModel") -> tuple[set[_Binding], set[_Binding]]:
    """Return the query parameters and headers that an operation requires, and those that it takes."""
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

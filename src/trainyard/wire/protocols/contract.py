"""The interface of a wire protocol: a codec between HTTP and shapes, which compiles a plan per operation."""

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from trainyard.wire.fault import Fault
from trainyard.wire.http import ByteStream, HttpRequest, HttpResponse

if TYPE_CHECKING:
    from botocore.model import OperationModel

    from trainyard.wire.routing import Route

Shape = dict[str, Any]


class Codec(Protocol):
    """Reads request shapes and writes response shapes in one protocol.

    A shape is a plain dict by AWS member names: timestamps are aware UTC datetimes, blobs are bytes, absent members
    are absent. Parsing checks types and raises Fault for anything malformed, never another exception; validation
    checks constraints. Safe to share between threads; plans are compiled on first use.
    """

    def takes_stream(self, operation: "OperationModel") -> bool:
        """Whether the body of this operation's request is a stream rather than part of a shape."""
        ...

    def parse(self, request: HttpRequest, route: "Route", stream: ByteStream | None = None) -> Shape:
        """Return the request shape. `stream` becomes the payload member of an operation that takes one."""
        ...

    def serialise(self, route: "Route", shape: Shape, *, request_id: str) -> HttpResponse:
        """Return the response. Members that are None are omitted; a member unknown to the model is a bug.

        If the body is bytes, the headers include its Content-Length.
        """
        ...

    def serialise_fault(
        self, fault: Fault, *, request_id: str, route: "Route | None" = None, is_head: bool = False
    ) -> HttpResponse:
        """Return the error response, well formed in this protocol whether or not the request was routed."""
        ...


P = TypeVar("P")


class PlanCache(Generic[P]):
    """Compiles the plan of an operation on first use and caches it. Safe to share between threads."""

    def __init__(self, compile_plan: "Callable[[OperationModel], P]") -> None:
        self._compile = compile_plan
        self._lock = Lock()
        self._plans: dict[OperationModel, P] = {}

    def of(self, operation: "OperationModel") -> P:
        plan = self._plans.get(operation)
        if plan is None:
            with self._lock:
                plan = self._plans[operation] = self._compile(operation)
        return plan

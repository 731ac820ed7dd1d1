"""What a protocol is to the yard: a codec between HTTP and shapes."""

from typing import TYPE_CHECKING, Any, Protocol

from trainyard.wire.fault import Fault
from trainyard.wire.http import ByteStream, HttpRequest, HttpResponse

if TYPE_CHECKING:
    from botocore.model import OperationModel

    from trainyard.wire.routing import Route

Shape = dict[str, Any]


class Codec(Protocol):
    """Reads request shapes and writes response shapes of one service in one protocol.

    A shape is a plain dict by AWS member names: timestamps are aware UTC datetimes, blobs are bytes, absent members
    are absent. Parsing checks types and raises Fault for anything malformed, never another exception; it does not
    check constraints, which is validation's part. Safe to share between threads; plans are compiled on first use.
    """

    def takes_stream(self, operation: "OperationModel") -> bool:
        """Whether the body of this operation's request is a stream rather than part of a shape."""
        ...

    def parse(self, request: HttpRequest, route: "Route", stream: ByteStream | None = None) -> Shape:
        """The request shape. `stream` becomes the payload member of an operation that takes one."""
        ...

    def serialise(self, route: "Route", shape: Shape, *, request_id: str) -> HttpResponse:
        """The answer. Members that are None are left out; one the model does not know is a mistake of ours.

        An answer whose body is bytes announces its Content-Length itself.
        """
        ...

    def serialise_fault(
        self, fault: Fault, *, request_id: str, route: "Route | None" = None, is_head: bool = False
    ) -> HttpResponse:
        """The refusal, well formed in this protocol, whether or not the request could be routed."""
        ...

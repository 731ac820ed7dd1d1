"""A client for a yard or any AWS endpoint, driven by the service models alone."""

import base64
import contextlib
import hashlib
import http.client
import select
import ssl
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from trainyard.foundation.errors import InvalidRequest, TrainyardError, Unavailable
from trainyard.wire.models import Models

if TYPE_CHECKING:
    from botocore.model import OperationModel

DEFAULT_TIMEOUT_S = 60.0

_READ_BYTES = 64 * 1024


class CallFailed(TrainyardError):
    """The service answered with an error."""

    def __init__(self, code: str, message: str, *, status: int) -> None:
        super().__init__(message)
        self.code, self.status = code, status


class Client:
    """Makes AWS calls with one key pair to one endpoint.

    Safe to share between threads; it keeps as many connections alive as there were concurrent calls. Request and
    response bodies are held in memory as bytes, except those that `stream` reads. Calls are never retried. CallFailed
    is an error response from the service. InvalidRequest means the call was not sent. Unavailable means that no
    complete response arrived, so the call may or may not have taken effect.
    """

    def __init__(
        self,
        endpoint_url: str,
        access_key_id: str,
        secret: str,
        region: str,
        *,
        session_token: str | None = None,
        ca_bundle: Path | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        models: Models | None = None,
    ) -> None:
        parts = urlsplit(endpoint_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidRequest(f'"{endpoint_url}" is not an address; write it like http://127.0.0.1:4400.')
        self._endpoint_url = endpoint_url.rstrip("/")
        self._connections = _ConnectionPool(
            parts.scheme, parts.hostname, port=parts.port, ca_bundle=ca_bundle, timeout_s=timeout_s
        )
        self._keys = _SigningKeys(access_key_id, secret, session_token)
        self._region = region
        self._models = models or Models()

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        """Call an operation and return its response shape. `service` is botocore's name; members have AWS's names."""
        operation_model = self._operation(service, operation)
        answer = self._connections.exchange(self._signed_request(operation_model, params))
        return _parse_response(operation_model, answer)

    @contextlib.contextmanager
    def stream(self, service: str, operation: str, **params: Any) -> Iterator[Iterator[bytes]]:
        """Call an operation and yield the lines of its response body as they arrive, without newlines.

        CallFailed is raised before the first line. The iterator ends when the service ends the body; Unavailable is
        raised if the connection breaks or stays silent for longer than the timeout. Leaving the block disconnects.
        """
        operation_model = self._operation(service, operation)
        with self._connections.open_response(self._signed_request(operation_model, params)) as answer:
            if answer.status >= 300:
                _parse_response(operation_model, _Response(answer.status, answer.headers, b"".join(answer.pieces)))
            yield _lines(answer.pieces)

    def close(self) -> None:
        """Close idle connections; a later call opens a new one."""
        self._connections.close()

    def _operation(self, service: str, operation: str) -> "OperationModel":
        model = self._models.service(service)
        if operation not in model.operation_names:
            raise InvalidRequest(f"The {service} service has no operation {operation}.")
        return model.operation_model(operation)

    def _signed_request(self, operation: "OperationModel", params: dict[str, Any]) -> Any:
        from botocore.auth import S3SigV4Auth, SigV4Auth
        from botocore.awsrequest import create_request_object, prepare_request_dict
        from botocore.exceptions import ParamValidationError
        from botocore.serialize import create_serializer

        service = operation.service_model
        for name in operation.idempotent_members:
            params.setdefault(name, str(uuid.uuid4()))
        try:
            request = create_serializer(service.resolved_protocol).serialize_to_request(params, operation)
        except ParamValidationError as error:
            raise InvalidRequest(str(error)) from error
        if (operation.http_checksum or {}).get("requestChecksumRequired"):
            digest = hashlib.md5(_bytes(request["body"]), usedforsecurity=False).digest()
            request["headers"]["Content-MD5"] = base64.b64encode(digest).decode()
        prepare_request_dict(request, self._endpoint_url, user_agent="trainyard")
        signable = create_request_object(request)
        signer = S3SigV4Auth if service.signing_name == "s3" else SigV4Auth
        signer(self._keys, service.signing_name, self._region).add_auth(signable)
        return signable.prepare()


class _SigningKeys(NamedTuple):
    """The key pair as botocore's signers read it; botocore's own class would import half of botocore."""

    access_key: str
    secret_key: str
    token: str | None


@dataclass(frozen=True, slots=True)
class _Response:
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class _ResponseStream:
    status: int
    headers: Mapping[str, str]
    pieces: Iterator[bytes]


class _ConnectionPool:
    """The connections to one endpoint. An idle one is reused before a new one is opened."""

    def __init__(self, scheme: str, host: str, *, port: int | None, ca_bundle: Path | None, timeout_s: float) -> None:
        self._scheme, self._host, self._port, self._timeout_s = scheme, host, port, timeout_s
        self._ca_bundle = ca_bundle
        # append and pop are safe between threads.
        self._idle: list[http.client.HTTPConnection] = []

    def exchange(self, request: Any) -> _Response:
        connection = self._connection()
        try:
            with self._failing_as_unavailable():
                response = _send(connection, request)
                answer = _Response(response.status, _join_headers(response.getheaders()), response.read())
        except Unavailable:
            connection.close()
            raise
        self._idle.append(connection)
        return answer

    @contextlib.contextmanager
    def open_response(self, request: Any) -> Iterator[_ResponseStream]:
        """Send a request and yield the response, to be read within the block; the connection is not reused."""
        with contextlib.closing(self._connection()) as connection:
            with self._failing_as_unavailable():
                response = _send(connection, request)
            yield _ResponseStream(response.status, _join_headers(response.getheaders()), self._pieces(response))

    def _pieces(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        while True:
            with self._failing_as_unavailable():
                piece = response.read1(_READ_BYTES)
            if not piece:
                return
            yield piece

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _connection(self) -> http.client.HTTPConnection:
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._new_connection()
        if _is_dropped(connection):
            # The next request opens it again.
            connection.close()
        return connection

    def _new_connection(self) -> http.client.HTTPConnection:
        if self._scheme == "http":
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        try:
            context = ssl.create_default_context(cafile=str(self._ca_bundle) if self._ca_bundle else None)
        except OSError as error:
            raise InvalidRequest(f"Cannot read the certificate bundle {self._ca_bundle}: {error}.") from error
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=context)

    @contextlib.contextmanager
    def _failing_as_unavailable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: OSError | http.client.HTTPException) -> Unavailable:
        where = f"{self._scheme}://{self._host}" + (f":{self._port}" if self._port else "")
        if isinstance(error, ConnectionRefusedError):
            return Unavailable(f"Nothing listens at {where}. Start a yard there with `trainyard up`.")
        if isinstance(error, TimeoutError):
            return Unavailable(f"{where} did not answer within {self._timeout_s:g} s; see `trainyard status`.")
        if isinstance(error, ssl.SSLCertVerificationError):
            return Unavailable(
                f"The certificate of {where} is not trusted ({error.verify_message}). "
                "Set AWS_CA_BUNDLE to the yard's certificate authority, as `trainyard env` does."
            )
        return Unavailable(f"The call to {where} broke off: {error or type(error).__name__}.")


def _send(connection: http.client.HTTPConnection, request: Any) -> http.client.HTTPResponse:
    target = urlsplit(request.url)
    path = f"{target.path or '/'}?{target.query}" if target.query else target.path or "/"
    headers = {name: _text(value) for name, value in request.headers.items()}
    connection.request(request.method, path, body=_bytes(request.body), headers=headers)
    return connection.getresponse()


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    partial = b""
    for piece in pieces:
        *whole, partial = (partial + piece).split(b"\n")
        yield from whole
    if partial:
        yield partial


def _is_dropped(connection: http.client.HTTPConnection) -> bool:
    """Whether the server closed an idle connection. Checked before a call is sent on it and lost."""
    if connection.sock is None:
        return False
    # Windows has no poll. Elsewhere, select fails for descriptors above 1023.
    if not hasattr(select, "poll"):
        return bool(select.select([connection.sock], [], [], 0)[0])
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else bytes(body or b"")


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _join_headers(fields: list[tuple[str, str]]) -> Mapping[str, str]:
    from botocore.awsrequest import HeadersDict

    headers: Mapping[str, str] = HeadersDict(fields)
    return headers


def _parse_response(operation: "OperationModel", answer: _Response) -> dict[str, Any]:
    from botocore.parsers import ResponseParserError, create_parser

    has_failed = answer.status >= 300
    # botocore would decode bytes as text; it leaves other types alone.
    body = answer.body if has_failed or not operation.has_streaming_output else memoryview(answer.body)
    response = {"headers": answer.headers, "status_code": answer.status, "body": body}
    try:
        parsed = create_parser(operation.service_model.resolved_protocol).parse(response, operation.output_shape)
    except ResponseParserError as error:
        raise Unavailable(f"The response to {operation.name} is not an AWS response: {error}.") from error
    if not has_failed:
        return {name: answer.body if value is body else value for name, value in parsed.items()}
    details = parsed.get("Error", {})
    code = details.get("Code") or str(answer.status)
    raise CallFailed(code, details.get("Message") or f"{operation.name} failed with {code}.", status=answer.status)

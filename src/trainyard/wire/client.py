"""Calls to a yard, or to any AWS endpoint, from the service models alone."""

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

_PIECE_BYTES = 64 * 1024


class CallFailed(TrainyardError):
    """The service answered with an error."""

    def __init__(self, code: str, message: str, *, status: int) -> None:
        super().__init__(message)
        self.code, self.status = code, status


class Client:
    """Makes AWS calls with one key pair to one endpoint.

    May be shared between threads; connections are kept alive, as many as there were calls at one time. Bodies are
    bytes, whole in memory, both ways, but for those that `stream` reads. Nothing is tried twice. CallFailed is what the
    service answered, InvalidRequest what it was not even asked, and Unavailable means that no whole answer came, so
    that the call may or may not have had its effect.
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
        self._wire = _Wire(parts.scheme, parts.hostname, port=parts.port, ca_bundle=ca_bundle, timeout_s=timeout_s)
        self._keys = _Keys(access_key_id, secret, session_token)
        self._region = region
        self._models = models or Models()

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        """The response shape of `operation`, by botocore's name of the service and AWS's names of members."""
        operation_model = self._operation(service, operation)
        answer = self._wire.exchange(self._signed_request(operation_model, params))
        return _parsed(operation_model, answer)

    @contextlib.contextmanager
    def stream(self, service: str, operation: str, **params: Any) -> Iterator[Iterator[bytes]]:
        """The lines of the body that `operation` answers with, each as soon as it has come, without its newline.

        CallFailed is raised before the first line. The lines end where the service ended them; Unavailable is raised
        where it did not, or where nothing came for as long as an answer may take. Leaving the block hangs up.
        """
        operation_model = self._operation(service, operation)
        with self._wire.opened(self._signed_request(operation_model, params)) as answer:
            if answer.status >= 300:
                _parsed(operation_model, _Answer(answer.status, answer.headers, b"".join(answer.pieces)))
            yield _lines(answer.pieces)

    def close(self) -> None:
        """Close the connections at rest; a later call opens a new one."""
        self._wire.close()

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


class _Keys(NamedTuple):
    """What botocore's signers read; its own class would import half of it."""

    access_key: str
    secret_key: str
    token: str | None


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class _OpenAnswer:
    status: int
    headers: Mapping[str, str]
    pieces: Iterator[bytes]


class _Wire:
    """The connections to one endpoint. One at rest is used again before another is opened."""

    def __init__(self, scheme: str, host: str, *, port: int | None, ca_bundle: Path | None, timeout_s: float) -> None:
        self._scheme, self._host, self._port, self._timeout_s = scheme, host, port, timeout_s
        self._ca_bundle = ca_bundle
        self._resting: list[http.client.HTTPConnection] = []  # append and pop are safe between threads

    def exchange(self, request: Any) -> _Answer:
        connection = self._connection()
        try:
            with self._failing_as_unavailable():
                response = _sent(connection, request)
                answer = _Answer(response.status, _joined(response.getheaders()), response.read())
        except Unavailable:
            connection.close()
            raise
        self._resting.append(connection)
        return answer

    @contextlib.contextmanager
    def opened(self, request: Any) -> Iterator[_OpenAnswer]:
        """The answer, to be read within the block, on a connection that is not used again."""
        with contextlib.closing(self._connection()) as connection:
            with self._failing_as_unavailable():
                response = _sent(connection, request)
            yield _OpenAnswer(response.status, _joined(response.getheaders()), self._pieces(response))

    def _pieces(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        while True:
            with self._failing_as_unavailable():
                piece = response.read1(_PIECE_BYTES)
            if not piece:
                return
            yield piece

    def close(self) -> None:
        while self._resting:
            self._resting.pop().close()

    def _connection(self) -> http.client.HTTPConnection:
        try:
            connection = self._resting.pop()
        except IndexError:
            return self._new_connection()
        if _was_dropped(connection):
            connection.close()  # the request opens it again
        return connection

    def _new_connection(self) -> http.client.HTTPConnection:
        if self._scheme == "http":
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        try:
            context = ssl.create_default_context(cafile=str(self._ca_bundle) if self._ca_bundle else None)
        except OSError as error:
            raise InvalidRequest(f"The certificate bundle {self._ca_bundle} cannot be read: {error}.") from error
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
            return Unavailable(f"{where} gave no answer within {self._timeout_s:g} s; see `trainyard status`.")
        if isinstance(error, ssl.SSLCertVerificationError):
            return Unavailable(
                f"The certificate of {where} is not trusted ({error.verify_message}). "
                "Name the yard's certificate authority, as `trainyard env` does in AWS_CA_BUNDLE."
            )
        return Unavailable(f"The call to {where} broke off: {error or type(error).__name__}.")


def _sent(connection: http.client.HTTPConnection, request: Any) -> http.client.HTTPResponse:
    target = urlsplit(request.url)
    path = f"{target.path or '/'}?{target.query}" if target.query else target.path or "/"
    headers = {name: _text(value) for name, value in request.headers.items()}
    connection.request(request.method, path, body=_bytes(request.body), headers=headers)
    return connection.getresponse()


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    begun = b""
    for piece in pieces:
        *whole, begun = (begun + piece).split(b"\n")
        yield from whole
    if begun:
        yield begun


def _was_dropped(connection: http.client.HTTPConnection) -> bool:
    """Whether the server closed a connection at rest, seen before a call is put on it and lost."""
    if connection.sock is None:
        return False
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else bytes(body or b"")


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _joined(fields: list[tuple[str, str]]) -> Mapping[str, str]:
    from botocore.awsrequest import HeadersDict

    headers: Mapping[str, str] = HeadersDict(fields)
    return headers


def _parsed(operation: "OperationModel", answer: _Answer) -> dict[str, Any]:
    from botocore.parsers import ResponseParserError, create_parser

    has_failed = answer.status >= 300
    # botocore leaves a body that is not bytes alone, where it would read bytes as text.
    body = answer.body if has_failed or not operation.has_streaming_output else memoryview(answer.body)
    response = {"headers": answer.headers, "status_code": answer.status, "body": body}
    try:
        parsed = create_parser(operation.service_model.resolved_protocol).parse(response, operation.output_shape)
    except ResponseParserError as error:
        raise Unavailable(f"The answer to {operation.name} is no AWS answer: {error}.") from error
    if not has_failed:
        return {name: answer.body if value is body else value for name, value in parsed.items()}
    told = parsed.get("Error", {})
    code = told.get("Code") or str(answer.status)
    raise CallFailed(code, told.get("Message") or f"{operation.name} failed with {code}.", status=answer.status)

"""One bucket of any S3, through obstore. No other module uses obstore."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, BinaryIO

from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.foundation.extras import require_extra
from trainyard.objects.encryption.headers import Encryption
from trainyard.objects.remote.failures import RemoteObjectChanged, RemoteObjectMissing, RetryPolicy, TransientFailure

if TYPE_CHECKING:
    from obstore import Attributes, GetOptions, GetResult, ObjectMeta, PutMode
    from obstore.store import ClientConfig, RetryConfig, S3Config, S3Store

Body = bytes | BinaryIO

# Larger bodies are sent in several requests.
MAX_SINGLE_PUT_BYTES = 5 << 20
# Concurrent requests for a larger body, each with a chunk in memory.
_UPLOAD_CONCURRENCY = 4
# S3 allows 10,000.
_MAX_CHUNKS = 9_000
_PAGE = 1000
# Ways of encryption, each with connections of its own, that are kept open.
_MAX_ENCRYPTIONS = 16

_STATUS_PATTERN = re.compile(r"status code: (\d{3})")
_CODE_PATTERN = re.compile(r"<Code>(\w+)</Code>")
_RETRYABLE_STATUSES = (408, 429)
# Texts in obstore's debug output, and what they mean.
_CONNECTION_FAILURES = {
    "kind: Timeout": "did not answer in time",
    "ConnectionRefused": "refused the connection",
    "IncompleteBody": "closed the connection in the middle of its response",
    "ConnectionReset": "reset the connection",
    "BrokenPipe": "reset the connection",
    "IncompleteMessage": "closed the connection without a response",
}


@dataclass(frozen=True, slots=True)
class RemoteAddress:
    """A bucket and how to reach it. Without keys, the usual AWS credential sources are used."""

    bucket: str
    endpoint: str | None = None
    region: str = "us-east-1"
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None

    def __str__(self) -> str:
        return f"s3://{self.bucket} at {self.endpoint or f'Amazon S3 in {self.region}'}"


@dataclass(frozen=True, slots=True)
class RemoteObject:
    """An object in a listing. `etag` has no quotes; times are whole seconds, as in HTTP headers."""

    path: str
    size: int
    etag: str
    modified_at: datetime


@dataclass(frozen=True, slots=True)
class FetchedObject:
    """An object with its metadata. `chunks` or `read` fetches the body, once."""

    object: RemoteObject
    version: str | None
    metadata: Mapping[str, str]
    result: "GetResult"

    def read(self) -> bytes:
        with _translate_errors(self.object.path):
            data = bytes(self.result.bytes())
        start, end = self.result.range
        if len(data) != end - start:
            raise TransientFailure(f"sent {len(data)} of {end - start} bytes")
        return data

    def chunks(self) -> Iterator[bytes]:
        with _translate_errors(self.object.path):
            for chunk in self.result.stream(min_chunk_size=1 << 20):
                yield bytes(chunk)

    def close(self) -> None:
        """Do nothing; obstore closes its connections with their last result."""


class RemoteBucket:
    """The operations that we need of a remote bucket. All methods may be called from any thread.

    They raise RemoteObjectMissing and RemoteObjectChanged as documented, TransientFailure for what may be gone in a
    moment, and Unavailable for all other failures. `retry_policy` governs every request.
    """

    def __init__(self, address: RemoteAddress, retry_policy: RetryPolicy) -> None:
        require_extra("s3")
        import obstore

        self._obstore = obstore
        self._address, self._retry_policy = address, retry_policy
        self._store = _open_store(address, retry_policy, None)
        # obstore asks for encryption by the configuration of a store, not by request.
        self._encrypting_store = lru_cache(_MAX_ENCRYPTIONS)(partial(_open_store, address, retry_policy))

    def require(self, address: RemoteAddress) -> None:
        """Raise InvalidRequest if there is no such bucket; later it would look like missing keys."""
        try:
            next(self.list(".trainyard-check"), None)
        except Unavailable as error:
            if "status code: 404" not in str(error.__cause__):
                raise
            raise InvalidRequest(f"There is no bucket {address}; create it first.") from error

    def head(self, path: str) -> FetchedObject:
        return self._get(path, {"head": True})

    def get(self, path: str) -> FetchedObject:
        return self._get(path, {})

    def read_range(self, path: str, offset: int, size: int, *, etag: str, version: str | None = None) -> bytes:
        """Read some bytes of one version; RemoteObjectChanged if the remote no longer has that version."""
        options: GetOptions = {"range": (offset, offset + size), "if_match": f'"{etag}"'}
        if version:
            options["version"] = version
        fetched = self._get(path, options)
        # A remote may ignore If-Match.
        if fetched.object.etag != etag:
            raise RemoteObjectChanged(path)
        return fetched.read()

    def put(
        self,
        path: str,
        body: Body,
        *,
        size: int,
        metadata: Mapping[str, str],
        content_type: str = "",
        encryption: Encryption | None = None,
    ) -> str:
        """Write atomically, in several requests if it is large, and return the ETag. The remote does the encryption."""
        attributes: Attributes = dict(metadata)
        if content_type:
            attributes["Content-Type"] = content_type
        chunk = max(MAX_SINGLE_PUT_BYTES, -(-size // _MAX_CHUNKS))
        with _translate_errors(path):
            result = self._obstore.put(
                self._store_for(encryption),
                path,
                body,
                attributes=attributes,
                use_multipart=size > MAX_SINGLE_PUT_BYTES,
                chunk_size=chunk,
                max_concurrency=_UPLOAD_CONCURRENCY,
            )
        return _unquote_etag(result["e_tag"])

    def put_if(
        self,
        path: str,
        body: bytes,
        *,
        etag: str | None,
        metadata: Mapping[str, str],
        content_type: str = "",
        encryption: Encryption | None = None,
    ) -> str:
        """Replace the object with that ETag, or with None create it; RemoteObjectChanged otherwise."""
        attributes: Attributes = dict(metadata)
        if content_type:
            attributes["Content-Type"] = content_type
        mode: PutMode = "create" if etag is None else {"e_tag": f'"{etag}"'}
        with _translate_errors(path):
            store = self._store_for(encryption)
            result = self._obstore.put(store, path, body, attributes=attributes, mode=mode, use_multipart=False)
        return _unquote_etag(result["e_tag"])

    def list(self, folder: str, *, after: str | None = None) -> Iterator[RemoteObject]:
        """Yield all objects below a folder in order; with `after`, only those after that path."""
        with _translate_errors(folder):
            for page in self._obstore.list(self._store, folder, offset=after, chunk_size=_PAGE):
                for meta in page:
                    yield _object(meta)

    def copy(self, source: str, target: str, *, encryption: Encryption | None = None) -> None:
        """Copy within the remote, with all metadata."""
        with _translate_errors(source):
            self._obstore.copy(self._store_for(encryption), source, target)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; missing ones are ignored."""
        if paths:
            with _translate_errors(paths[0]):
                self._obstore.delete(self._store, list(paths))

    def _store_for(self, encryption: Encryption | None) -> "S3Store":
        return self._store if encryption is None else self._encrypting_store(encryption)

    def _get(self, path: str, options: "GetOptions") -> FetchedObject:
        with _translate_errors(path):
            result = self._obstore.get(self._store, path, options=options)
            metadata = {str(name): value for name, value in result.attributes.items()}
            return FetchedObject(_object(result.meta), result.meta["version"], metadata, result)


def _open_store(address: RemoteAddress, retry_policy: RetryPolicy, encryption: Encryption | None) -> "S3Store":
    from obstore.store import S3Store

    return S3Store(
        address.bucket,
        config=_config(address, encryption),
        client_options=_client_options(address, retry_policy),
        retry_config=_retry_config(retry_policy),
    )


def _config(address: RemoteAddress, encryption: Encryption | None) -> "S3Config":
    config: S3Config = {"region": address.region}
    if encryption is not None:
        config["server_side_encryption"] = encryption.algorithm
        config["sse_bucket_key_enabled"] = encryption.has_bucket_key
        if encryption.key:
            config["sse_kms_key_id"] = encryption.key
    if address.endpoint:
        config["endpoint"] = address.endpoint
    if address.access_key_id:
        config["access_key_id"] = address.access_key_id
    if address.secret_access_key:
        config["secret_access_key"] = address.secret_access_key
    if address.session_token:
        config["session_token"] = address.session_token
    return config


def _client_options(address: RemoteAddress, retry_policy: RetryPolicy) -> "ClientConfig":
    return {
        "allow_http": (address.endpoint or "").startswith("http://"),
        # A limit on whole requests would cut off long bodies; the read timeout detects stalled ones.
        "timeout": timedelta(days=1),
        "read_timeout": timedelta(seconds=retry_policy.read_timeout_s),
    }


def _retry_config(retry_policy: RetryPolicy) -> "RetryConfig":
    return {
        "max_retries": retry_policy.tries - 1,
        "backoff": {
            "init_backoff": timedelta(seconds=retry_policy.first_pause_s),
            "max_backoff": timedelta(seconds=retry_policy.max_pause_s),
            "base": 2,
        },
        "retry_timeout": timedelta(minutes=3),
    }


def _object(meta: "ObjectMeta") -> RemoteObject:
    return RemoteObject(
        meta["path"], meta["size"], _unquote_etag(meta["e_tag"]), meta["last_modified"].replace(microsecond=0)
    )


def _unquote_etag(etag: str | None) -> str:
    return (etag or "").strip('"')


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    from obstore import exceptions

    try:
        yield
    except FileNotFoundError as error:
        raise RemoteObjectMissing(path) from error
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
        raise RemoteObjectChanged(path) from error
    except exceptions.BaseError as error:
        raise _unavailable(error) from error


def _unavailable(error: Exception) -> Unavailable:
    text = str(error)
    # obstore has its own errors for a refused request, but not while listing.
    status = int(match[1]) if (match := _STATUS_PATTERN.search(text)) else None
    if status in (401, 403):
        return Unavailable(f"The remote store refuses our keys: {_first_line(error)}. Check the settings `objects_…`.")
    if status is not None and status < 500 and status not in _RETRYABLE_STATUSES:
        return Unavailable(f"The remote store is unavailable: {_first_line(error)}. Try again.")
    return TransientFailure(_failure_text(text, status))


def _failure_text(text: str, status: int | None) -> str:
    """Summarise the failure in a few words; obstore's text fills a page."""
    if status is not None:
        code = _CODE_PATTERN.search(text)
        return f"answered {status}{f' {code[1]}' if code else ''}"
    for pattern, what in _CONNECTION_FAILURES.items():
        if pattern in text:
            return what
    return f"could not be reached ({text.partition(chr(10))[0].strip().rstrip('.')})"


def _first_line(error: Exception) -> str:
    """Return the first line; obstore adds a page of debug output."""
    return str(error).partition("\n")[0].strip().rstrip(".")

"""One bucket of any S3, through obstore; the only module that knows obstore."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, BinaryIO

from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.objects.remote.faults import Absent, Moved, Passing
from trainyard.objects.remote.patience import Patience

if TYPE_CHECKING:
    from obstore import Attributes, GetOptions, GetResult, ObjectMeta, PutMode
    from obstore.store import ClientConfig, RetryConfig, S3Config

Body = bytes | BinaryIO

SMALL = 5 << 20  # up to here a body goes in one request
_CONCURRENCY = 4  # requests at a time for a larger one, each with a chunk in memory
_MOST_CHUNKS = 9_000  # S3 takes 10,000
_PAGE = 1000

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_LATER = (408, 429)  # refusals that are none for ever
_SIGNS = {  # in what obstore tells for debugging
    "kind: Timeout": "did not answer in time",
    "ConnectionRefused": "refused the connection",
    "IncompleteBody": "broke off in the middle of its answer",
    "ConnectionReset": "reset the connection",
    "BrokenPipe": "reset the connection",
    "IncompleteMessage": "closed the connection without an answer",
}


@dataclass(frozen=True, slots=True)
class RemoteAddress:
    """Which bucket, and how to get at it. Without keys the usual AWS sources are asked."""

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
    """What a list tells of an object. `etag` carries no quotes; times are whole seconds, as in HTTP headers."""

    path: str
    size: int
    etag: str
    modified_at: datetime


@dataclass(frozen=True, slots=True)
class Fetched:
    """An object with its metadata. The body is fetched when `chunks` or `read` is called, once."""

    object: RemoteObject
    version: str | None
    metadata: Mapping[str, str]
    result: "GetResult"

    def read(self) -> bytes:
        with _explained(self.object.path):
            data = bytes(self.result.bytes())
        start, end = self.result.range
        if len(data) != end - start:
            raise Passing(f"sent {len(data)} of {end - start} bytes")
        return data

    def chunks(self) -> Iterator[bytes]:
        with _explained(self.object.path):
            for chunk in self.result.stream(min_chunk_size=1 << 20):
                yield bytes(chunk)

    def close(self) -> None:
        """There is nothing to close; obstore's connections end with their last result."""


class RemoteBucket:
    """The few things we ask of the remote bucket. May be called from any thread.

    Raises Absent and Moved as the methods say, Passing for what may be over in a moment, and Unavailable for everything
    else that goes wrong. Every request is tried as `patience` says.
    """

    def __init__(self, address: RemoteAddress, patience: Patience) -> None:
        import obstore
        from obstore.store import S3Store

        self._obstore = obstore
        self._store = S3Store(
            address.bucket,
            config=_config(address),
            client_options=_client_options(address, patience),
            retry_config=_retries(patience),
        )

    def require(self, address: RemoteAddress) -> None:
        """Say at once when there is no such bucket; later that would look as if keys were missing."""
        try:
            next(self.list(".trainyard-check"), None)
        except Unavailable as error:
            if "status code: 404" not in str(error.__cause__):
                raise
            raise InvalidRequest(f"There is no bucket {address}; make it first.") from error

    def head(self, path: str) -> Fetched:
        return self._get(path, {"head": True})

    def get(self, path: str) -> Fetched:
        return self._get(path, {})

    def read_range(self, path: str, offset: int, size: int, *, etag: str, version: str | None = None) -> bytes:
        """Some bytes of one version; Moved when it is no longer the newest and the remote keeps no others."""
        options: GetOptions = {"range": (offset, offset + size), "if_match": f'"{etag}"'}
        if version:
            options["version"] = version
        fetched = self._get(path, options)
        if fetched.object.etag != etag:  # the remote knows no If-Match
            raise Moved(path)
        return fetched.read()

    def put(self, path: str, body: Body, *, size: int, metadata: Mapping[str, str], content_type: str = "") -> str:
        """Write, in several requests when it is large, and give the ETag. A reader sees the old object or the new."""
        attributes: Attributes = dict(metadata)
        if content_type:
            attributes["Content-Type"] = content_type
        chunk = max(SMALL, -(-size // _MOST_CHUNKS))
        with _explained(path):
            result = self._obstore.put(
                self._store,
                path,
                body,
                attributes=attributes,
                use_multipart=size > SMALL,
                chunk_size=chunk,
                max_concurrency=_CONCURRENCY,
            )
        return _bare(result["e_tag"])

    def put_if(
        self, path: str, body: bytes, *, etag: str | None, metadata: Mapping[str, str], content_type: str = ""
    ) -> str:
        """Write only over the object with that ETag, or, with None, where there is none; Moved otherwise."""
        attributes: Attributes = dict(metadata)
        if content_type:
            attributes["Content-Type"] = content_type
        mode: PutMode = "create" if etag is None else {"e_tag": f'"{etag}"'}
        with _explained(path):
            result = self._obstore.put(self._store, path, body, attributes=attributes, mode=mode, use_multipart=False)
        return _bare(result["e_tag"])

    def list(self, folder: str, *, after: str | None = None) -> Iterator[RemoteObject]:
        """All that lies in a folder, at any depth, in order; with `after` what comes after that path."""
        with _explained(folder):
            for page in self._obstore.list(self._store, folder, offset=after, chunk_size=_PAGE):
                for meta in page:
                    yield _object(meta)

    def copy(self, source: str, target: str) -> None:
        """Copy with all metadata, inside the remote."""
        with _explained(source):
            self._obstore.copy(self._store, source, target)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete those that are there."""
        if paths:
            with _explained(paths[0]):
                self._obstore.delete(self._store, list(paths))

    def _get(self, path: str, options: "GetOptions") -> Fetched:
        with _explained(path):
            result = self._obstore.get(self._store, path, options=options)
            metadata = {str(name): value for name, value in result.attributes.items()}
            return Fetched(_object(result.meta), result.meta["version"], metadata, result)


def _config(address: RemoteAddress) -> "S3Config":
    config: S3Config = {"region": address.region}
    if address.endpoint:
        config["endpoint"] = address.endpoint
    if address.access_key_id:
        config["access_key_id"] = address.access_key_id
    if address.secret_access_key:
        config["secret_access_key"] = address.secret_access_key
    if address.session_token:
        config["session_token"] = address.session_token
    return config


def _client_options(address: RemoteAddress, patience: Patience) -> "ClientConfig":
    return {
        "allow_http": (address.endpoint or "").startswith("http://"),
        # A limit for whole requests would cut long bodies; one that stalls is noticed by the second limit.
        "timeout": timedelta(days=1),
        "read_timeout": timedelta(seconds=patience.answer_s),
    }


def _retries(patience: Patience) -> "RetryConfig":
    return {
        "max_retries": patience.tries - 1,
        "backoff": {
            "init_backoff": timedelta(seconds=patience.first_pause_s),
            "max_backoff": timedelta(seconds=patience.longest_pause_s),
            "base": 2,
        },
        "retry_timeout": timedelta(minutes=3),
    }


def _object(meta: "ObjectMeta") -> RemoteObject:
    return RemoteObject(meta["path"], meta["size"], _bare(meta["e_tag"]), meta["last_modified"].replace(microsecond=0))


def _bare(etag: str | None) -> str:
    return (etag or "").strip('"')


@contextmanager
def _explained(path: str) -> Iterator[None]:
    from obstore import exceptions

    try:
        yield
    except FileNotFoundError as error:
        raise Absent(path) from error
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
        raise Moved(path) from error
    except exceptions.BaseError as error:
        raise _unavailable(error) from error


def _unavailable(error: Exception) -> Unavailable:
    text = str(error)
    # obstore has errors of its own for a refusal, but not in a list.
    status = int(told[1]) if (told := _STATUS.search(text)) else None
    if status in (401, 403):
        return Unavailable(f"The remote store refuses our keys: {_line(error)}. Check the settings `objects_…`.")
    if status is not None and status < 500 and status not in _LATER:
        return Unavailable(f"The remote store cannot be used now: {_line(error)}. Try again.")
    return Passing(_what(text, status))


def _what(text: str, status: int | None) -> str:
    """What the remote did, in a few words; obstore tells it in a page."""
    if status is not None:
        code = _CODE.search(text)
        return f"answered {status}{f' {code[1]}' if code else ''}"
    for sign, what in _SIGNS.items():
        if sign in text:
            return what
    return f"could not be asked ({text.partition(chr(10))[0].strip().rstrip('.')})"


def _line(error: Exception) -> str:
    """The first line; obstore adds a page of debugging."""
    return str(error).partition("\n")[0].strip().rstrip(".")

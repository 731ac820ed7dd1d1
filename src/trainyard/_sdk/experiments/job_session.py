"""The session of a script in a training job, whose environment may have neither the SDK nor botocore.

It makes the few calls that runs need with the standard library and the credentials in the environment of the job.
"""

import hashlib
import hmac
import http.client
import json
import os
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from trainyard.foundation.errors import InvalidRequest, TrainyardError, Unavailable

_TIMEOUT_S = 60.0
_ALGORITHM = "AWS4-HMAC-SHA256"
_TIMES = frozenset({"StartTime", "EndTime", "CreationTime", "LastModifiedTime", "TimeStamp", "Timestamp"})


class JobCallFailed(TrainyardError):
    """The yard answered with an error."""

    def __init__(self, code: str, message: str, *, status: int) -> None:
        super().__init__(message)
        self.code, self.status = code, status


@dataclass(slots=True)
class JobSession:
    """The yard as a training job sees it: what `Session` offers, as far as runs need it."""

    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    api: "JobApi" = field(init=False)

    def __post_init__(self) -> None:
        self.api = JobApi(self.environment)

    def default_bucket(self) -> str:
        """Return the default bucket of the user, and create it if it is missing."""
        account = self.environment.get("TRAINING_JOB_ARN", "").split(":")[4:5]
        if not account:
            raise InvalidRequest("TRAINING_JOB_ARN is not set, so the bucket for files is not known; name one.")
        bucket = f"sagemaker-{self.api.region}-{account[0]}"
        try:
            self.api.call("s3", "CreateBucket", Bucket=bucket)
        except JobCallFailed as error:
            if error.status != http.HTTPStatus.CONFLICT:
                raise
        return bucket

    def upload_data(self, path: str, bucket: str, key_prefix: str, extra_args: Mapping[str, str] | None = None) -> str:
        """Upload a file and return its location on S3."""
        if extra_args:
            raise InvalidRequest("In a training job, uploads take no extra arguments; leave extra_args out.")
        key = f"{key_prefix}/{Path(path).name}"
        self.api.call("s3", "PutObject", Bucket=bucket, Key=key, Body=Path(path).read_bytes())
        return f"s3://{bucket}/{key}"


class JobApi:
    """Calls operations of SageMaker, its metrics service and S3. Each thread has a connection of its own."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        url = environment.get("AWS_ENDPOINT_URL", "")
        self._address = urlsplit(url)
        if not self._address.hostname:
            raise Unavailable(
                "This job cannot reach the yard: AWS_ENDPOINT_URL is not set. With network isolation, no job can; log "
                "metrics by printing them, with metric_definitions."
            )
        self.region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
        self._key_id = environment.get("AWS_ACCESS_KEY_ID", "")
        self._secret = environment.get("AWS_SECRET_ACCESS_KEY", "")
        self._token = environment.get("AWS_SESSION_TOKEN", "")
        self._ca_bundle = environment.get("AWS_CA_BUNDLE") or None
        self._local = threading.local()

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        """Call an operation and return its response shape."""
        if service == "s3":
            body = params.get("Body", b"")
            path = f"/{params['Bucket']}" + (f"/{quote(params['Key'], safe='/~')}" if "Key" in params else "")
            return self._exchange("PUT", path, body, {}, service="s3")
        body = json.dumps(_plain(params)).encode()
        if service == "sagemaker-metrics":
            return self._exchange("PUT", f"/{operation}", body, {"content-type": "application/json"})
        headers = {"content-type": "application/x-amz-json-1.1", "x-amz-target": f"SageMaker.{operation}"}
        return self._exchange("POST", "/", body, headers)

    def stream(self, service: str, operation: str, **params: Any) -> AbstractContextManager[Iterator[bytes]]:
        """Refuse: runs read no streams."""
        raise InvalidRequest(f"A script in a job cannot read the stream of {service} {operation}; {len(params)} given.")

    def _exchange(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], *, service: str = "sagemaker"
    ) -> dict[str, Any]:
        signed = self._signed(method, path, body, headers, service=service)
        for is_last in (False, True):
            connection, is_new = self._connection()
            try:
                connection.request(method, path, body, signed)
                response = connection.getresponse()
                data = response.read()
            except (OSError, http.client.HTTPException) as error:
                self._local.connection = None
                # An idle connection may have been closed by the other end.
                if is_last or is_new:
                    raise Unavailable(f"The yard does not answer: {error}") from error
            else:
                return _answer(response.status, data, is_json=service != "s3")
        raise AssertionError("the second try returns or raises")

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        known: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if known is not None:
            return known, False
        host, port = self._address.hostname or "", self._address.port
        if self._address.scheme == "https":
            context = ssl.create_default_context(cafile=self._ca_bundle)
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=_TIMEOUT_S, context=context
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
        self._local.connection = connection
        return connection, True

    def _signed(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], *, service: str
    ) -> dict[str, str]:
        """Return the headers with a signature of version 4."""
        timestamp, digest = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}", hashlib.sha256(body).hexdigest()
        signed = {**headers, "host": self._address.netloc, "x-amz-date": timestamp, "x-amz-content-sha256": digest}
        if self._token:
            signed["x-amz-security-token"] = self._token
        names = ";".join(sorted(signed))
        lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
        # Only S3 does not encode the path twice, and the other paths have nothing to encode.
        canonical = f"{method}\n{path}\n\n{lines}\n{names}\n{digest}"
        scope = f"{timestamp[:8]}/{self.region}/{service}/aws4_request"
        text = f"{_ALGORITHM}\n{timestamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = f"AWS4{self._secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        claim = f"{_ALGORITHM} Credential={self._key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
        return {**signed, "authorization": claim}


def _answer(status: int, data: bytes, *, is_json: bool) -> dict[str, Any]:
    if not is_json:
        if status >= 300:
            raise JobCallFailed("S3Error", data.decode(errors="replace")[:500], status=status)
        return {}
    try:
        answer: dict[str, Any] = json.loads(data or b"{}")
    except ValueError as error:
        raise Unavailable(f"The yard answered {status} without JSON.") from error
    if status >= 300:
        code = str(answer.get("__type", answer.get("code", ""))).rpartition("#")[2]
        raise JobCallFailed(code, answer.get("message", answer.get("Message", "")), status=status)
    found: dict[str, Any] = _with_times(answer)
    return found


def _plain(value: Any) -> Any:
    """Return a value that `json.dumps` accepts, with times as seconds since the epoch."""
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _with_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: datetime.fromtimestamp(item, UTC)
            if name in _TIMES and isinstance(item, int | float)
            else _with_times(item)
            for name, item in value.items()
        }
    return [_with_times(item) for item in value] if isinstance(value, list) else value

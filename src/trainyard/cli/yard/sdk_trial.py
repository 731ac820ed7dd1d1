"""Tries a session of the sagemaker SDK, step by step. `trainyard doctor --sdk` runs this file with the SDK's Python.

    python sdk_trial.py HTTP HTTPS

The arguments are the addresses of the yard. Nothing is sent anywhere else: the first step stops if the SDK would call
another address, such as Amazon's. Each step is printed as one line of JSON. This file imports nothing of Trainyard, and
runs on Python 3.8 as well.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

_CONNECT = "trainyard connect -y, and do what it says about variables of this shell"
_KEY = "trainyard-doctor/hello.txt"


class _Stop(Exception):
    """The later steps make no sense. `remedy` is what to do."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.remedy = remedy


class SdkTrial:
    """The steps of a session, in order."""

    def __init__(self, http: str, https: str) -> None:
        self._hosts = [urlsplit(each).netloc for each in (http, https) if each]
        self._session: Any = None
        self._sdk: Any = None
        self._bucket = ""

    def steps(self) -> list[tuple[str, Callable[[], str]]]:
        """Return the name of each step and what it does."""
        return [
            ("import", self._import),
            ("addresses", self._check_addresses),
            ("identity", self._identity),
            ("role", self._role),
            ("default bucket", self._default_bucket),
            ("upload", self._upload),
            ("list jobs", self._list_jobs),
        ]

    def _import(self) -> str:
        try:
            import sagemaker
        except ImportError as error:
            raise _Stop(str(error), f"{sys.executable} -m pip install 'sagemaker<3'") from error
        version = getattr(sagemaker, "__version__", "")
        # In version 3, the session lies elsewhere.
        names = ("sagemaker.session", "sagemaker.core.helper.session_helper")
        for name in names:
            try:
                self._sdk = importlib.import_module(name)
                break
            except ImportError:
                continue
        if self._sdk is None:
            raise _Stop("sagemaker has no module with a session", "install another version of sagemaker")
        return "sagemaker {} on Python {}".format(version or "3", sys.version.split()[0])

    def _check_addresses(self) -> str:
        import boto3

        session = boto3.Session()
        found = {name: session.client(name).meta.endpoint_url for name in ("sagemaker", "s3")}
        found["sts"] = self._sts_address(session.region_name)
        for name, url in found.items():
            if urlsplit(url).netloc not in self._hosts:
                raise _Stop(f"{name} would be called at {url}", _CONNECT)
        return ", ".join(sorted({urlsplit(url).netloc for url in found.values()}))

    def _sts_address(self, region: str) -> str:
        """Return the address at which the SDK calls STS, whatever is configured."""
        for name in ("sagemaker.utils", "sagemaker.core.common_utils"):
            try:
                return str(importlib.import_module(name).sts_regional_endpoint(region))
            except (ImportError, AttributeError):
                continue
        raise _Stop("this version of sagemaker does not tell where it calls STS", "use another version of sagemaker")

    def _identity(self) -> str:
        self._session = self._sdk.Session()
        return str(self._session.get_caller_identity_arn())

    def _role(self) -> str:
        return str(self._sdk.get_execution_role(self._session))

    def _default_bucket(self) -> str:
        self._bucket = self._session.default_bucket()
        return self._bucket

    def _upload(self) -> str:
        uri = self._session.upload_string_as_file_body("hello", self._bucket, _KEY)
        text = self._session.read_s3_file(self._bucket, _KEY)
        self._session.boto_session.client("s3").delete_object(Bucket=self._bucket, Key=_KEY)
        if text != "hello":
            raise ValueError(f"read back {text!r}")
        return str(uri or f"s3://{self._bucket}/{_KEY}")

    def _list_jobs(self) -> str:
        listed = self._session.sagemaker_client.list_training_jobs(MaxResults=10)["TrainingJobSummaries"]
        return f"{len(listed)} of the latest jobs" if listed else "no jobs yet"


def remedy_of(error: BaseException) -> str:
    """Return what to do about an error of a client."""
    text = f"{type(error).__name__}: {error}"
    for words, remedy in _REMEDIES.items():
        if any(word in text for word in words):
            return remedy
    return "trainyard status, and the log of the yard that it names"


_REMEDIES: dict[tuple[str, ...], str] = {
    (
        "SSLError",
        "CERTIFICATE_VERIFY_FAILED",
        "SSL validation failed",
    ): "trainyard connect -y, and do what it says about AWS_CA_BUNDLE",
    ("EndpointConnectionError", "ConnectionRefused", "Could not connect", "ConnectTimeout"): "trainyard up --detach",
    ("NoCredentials", "ProfileNotFound", "NoRegion", "must specify a region"): "trainyard connect",
    ("InvalidClientTokenId", "UnrecognizedClient", "InvalidAccessKeyId", "SignatureDoesNotMatch"): "unset "
    "AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN, then trainyard connect",
    ("not a role", "is not a valid role", "The current AWS identity"): "pass the role to the estimator by its ARN",
}


def main() -> int:
    """Try each step, and stop after the first that fails."""
    for name, step in SdkTrial(*sys.argv[1:3]).steps():
        try:
            row = {"name": name, "ok": True, "detail": step(), "consequence": ""}
        # Whatever a client raises is the result of the trial.
        except Exception as error:
            remedy = error.remedy if isinstance(error, _Stop) else remedy_of(error)
            detail = str(error) if isinstance(error, _Stop) else f"{type(error).__name__}: {error}"
            row = {"name": name, "ok": False, "detail": detail, "consequence": remedy}
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
        if not row["ok"]:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

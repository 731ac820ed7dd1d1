"""Finding the yard from a client: its home folder, its address, and who one is to it."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from trainyard.foundation.errors import NotFound, Unavailable
from trainyard.foundation.home import Credentials, Home, Runtime

if TYPE_CHECKING:
    from trainyard.owned_buckets import OwnBuckets

HOME_VARIABLE = "TRAINYARD_HOME"
DEFAULT_REGION = "us-east-1"  # where neither a user nor a yard names one

# Each of these, set for a real AWS account, would lead a client past the yard or make it speak as someone else.
MISLEADING = (
    "AWS_SESSION_TOKEN",
    "AWS_SECURITY_TOKEN",
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    "AWS_USE_DUALSTACK_ENDPOINT",
    "AWS_USE_FIPS_ENDPOINT",
)

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


class Api(Protocol):
    """The services of a yard, of which `wire.client.Client` says more."""

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]: ...

    def stream(self, service: str, operation: str, **params: Any) -> AbstractContextManager[Iterator[bytes]]: ...


@dataclass(frozen=True, slots=True)
class Access:
    """Where a yard answers, and as whom one calls it."""

    url: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    region: str
    session_token: str | None = field(default=None, repr=False)
    ca_bundle: Path | None = None
    models: Path | None = None  # a folder in which the yard keeps the models of its services

    def client(self) -> "OwnBuckets":
        """Calls to the yard; closed by who asked for it."""
        from trainyard.owned_buckets import OwnBuckets
        from trainyard.wire.client import Client
        from trainyard.wire.models import Models

        client = Client(
            self.url,
            self.access_key_id,
            self.secret_access_key,
            self.region,
            session_token=self.session_token,
            ca_bundle=self.ca_bundle,
            models=Models(self.models, writes=False),
        )
        return OwnBuckets(client)


@dataclass(frozen=True, slots=True)
class Connection:
    """A running yard, and the administrator of its home folder."""

    home: Home
    runtime: Runtime
    credentials: Credentials

    @property
    def access(self) -> Access:
        """As that administrator."""
        keys = self.credentials
        return Access(
            self.runtime.http, keys.access_key_id, keys.secret_access_key, keys.region, models=self.home.cache
        )

    def client(self) -> "OwnBuckets":
        """Calls to the yard as that administrator; closed by who asked for it."""
        return self.access.client()


@dataclass(frozen=True, slots=True)
class KeyPair:
    """How a user other than the home's administrator signs."""

    access_key_id: str
    secret_access_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Environment:
    """What to set and what to unset so that AWS clients of a process use the yard."""

    variables: Mapping[str, str]
    unset: tuple[str, ...]


def find_home(path: Path | None, environment: Mapping[str, str]) -> Home:
    """The folder given, else that of TRAINYARD_HOME, else ~/.trainyard."""
    chosen = path or Path(environment.get(HOME_VARIABLE) or "~/.trainyard")
    return Home(chosen.expanduser().absolute())


def find_yard(home: Home) -> Connection:
    """The yard that runs on a home folder; NotFound when none does."""
    runtime = home.runtime()
    if runtime is None:
        raise NotFound("running yard", str(home.root))
    return Connection(home, runtime, home.credentials())


def access_of(environment: Mapping[str, str]) -> Access | None:
    """The yard that the variables of an environment lead AWS clients to; None when they lead to none."""
    names = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    url, access_key_id, secret = (environment.get(name) for name in names)
    if not url or not access_key_id or not secret:
        return None
    ca_bundle = environment.get("AWS_CA_BUNDLE")
    return Access(
        url,
        access_key_id,
        secret,
        environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or DEFAULT_REGION,
        session_token=environment.get("AWS_SESSION_TOKEN") or None,
        ca_bundle=Path(ca_bundle) if ca_bundle else None,
    )


def start_yard(home: Home) -> Connection:
    """Start a yard in the background on a home folder and wait until it answers, as `trainyard up --detach` does."""
    command = [sys.executable, "-m", "trainyard.cli", "up", "--detach", "--home", str(home.root)]
    run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    try:
        return find_yard(home)  # another process may have started it first, and then this start failed
    except NotFound as error:
        raise Unavailable(f"No yard runs on {home.root}, and none could be started:\n{run.stderr.strip()}") from error


def client_environment(
    connection: Connection,
    *,
    keys: KeyPair | None = None,
    https: bool = False,
    current: Mapping[str, str] = os.environ,
) -> Environment:
    """The environment of a client that speaks as the home's administrator, or with the key pair of another user.

    A key pair is for someone else, who may not look into this home folder, so then nothing points to a file in it.
    `current` is the environment it will be laid over: a proxy in it is told to let the yard's address pass, and
    endpoints of single services in it are unset.
    """
    runtime, credentials = connection.runtime, connection.credentials
    variables = {
        "AWS_ENDPOINT_URL": runtime.https if https else runtime.http,
        "AWS_ACCESS_KEY_ID": keys.access_key_id if keys else credentials.access_key_id,
        "AWS_SECRET_ACCESS_KEY": keys.secret_access_key if keys else credentials.secret_access_key,
        "AWS_DEFAULT_REGION": credentials.region,
        "AWS_REGION": credentials.region,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    if keys is None:  # also with http, since the sagemaker SDK asks STS by https
        variables["AWS_CA_BUNDLE"] = str(connection.home.ca_bundle)
    if keys is None and https:
        variables["SSL_CERT_FILE"] = str(connection.home.ca_bundle)  # the only one that obstore looks at
    if not https:
        variables["AWS_ALLOW_HTTP"] = "true"  # obstore refuses plain http without it
    variables |= _proxy_exceptions(variables["AWS_ENDPOINT_URL"], current)
    per_service = sorted(name for name in current if name.startswith("AWS_ENDPOINT_URL_"))
    return Environment(variables, (*MISLEADING, *per_service))


def _proxy_exceptions(address: str, current: Mapping[str, str]) -> dict[str, str]:
    set_here = {name.lower() for name, value in current.items() if value}
    if not set_here.intersection(_PROXIES):
        return {}
    host = urlsplit(address).hostname or ""
    known = current.get("no_proxy") or current.get("NO_PROXY") or ""
    names = [name.strip() for name in known.split(",") if name.strip()]
    joined = ",".join(names if host in names else [*names, host])
    return {"no_proxy": joined, "NO_PROXY": joined}

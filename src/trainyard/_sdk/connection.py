"""How a client finds a yard: the home folder, the address, and the credentials."""

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
    from trainyard._sdk.storage.bucket_owner import OwnerCheckedClient

HOME_VARIABLE = "TRAINYARD_HOME"
# Used if neither the user nor the yard sets a region.
DEFAULT_REGION = "us-east-1"

# If one of these is set for a real AWS account, clients bypass the yard or use other credentials.
CONFLICTING_VARIABLES = (
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
    """Calls the services of a yard. `wire.client.Client` documents the methods."""

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]: ...

    def stream(self, service: str, operation: str, **params: Any) -> AbstractContextManager[Iterator[bytes]]: ...


@dataclass(frozen=True, slots=True)
class Access:
    """The address of a yard, and the credentials for it. `models` is the folder with its cached service models."""

    url: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    region: str
    session_token: str | None = field(default=None, repr=False)
    ca_bundle: Path | None = None
    models: Path | None = None

    def client(self) -> "OwnerCheckedClient":
        """Return a client of the yard. The caller closes it."""
        from trainyard._sdk.storage.bucket_owner import OwnerCheckedClient
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
        return OwnerCheckedClient(client)


@dataclass(frozen=True, slots=True)
class YardConnection:
    """A running yard, with the credentials of the administrator in its home folder."""

    home: Home
    runtime: Runtime
    credentials: Credentials

    @property
    def access(self) -> Access:
        """The access of the administrator."""
        keys = self.credentials
        return Access(
            self.runtime.http, keys.access_key_id, keys.secret_access_key, keys.region, models=self.home.cache
        )

    def client(self) -> "OwnerCheckedClient":
        """Return a client with the credentials of the administrator. The caller closes it."""
        return self.access.client()


@dataclass(frozen=True, slots=True)
class KeyPair:
    """The key pair of a user."""

    access_key_id: str
    secret_access_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientEnvironment:
    """The environment variables to set and to unset so that AWS clients use the yard."""

    variables: Mapping[str, str]
    unset: tuple[str, ...]


def find_home(path: Path | None, environment: Mapping[str, str]) -> Home:
    """Return the home folder: `path`, else that of TRAINYARD_HOME, else ~/.trainyard."""
    folder = path or Path(environment.get(HOME_VARIABLE) or "~/.trainyard")
    return Home(folder.expanduser().absolute())


def find_yard(home: Home) -> YardConnection:
    """Return the yard that runs on a home folder. Raises NotFound if none does."""
    runtime = home.runtime()
    if runtime is None:
        raise NotFound("running yard", str(home.root))
    return YardConnection(home, runtime, home.credentials())


def access_from_environment(environment: Mapping[str, str]) -> Access | None:
    """Return the access that the AWS variables of an environment give; None if they are incomplete."""
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


def start_yard(home: Home) -> YardConnection:
    """Start a yard in the background with `trainyard up --detach`, and wait until it answers."""
    command = [sys.executable, "-m", "trainyard.cli", "up", "--detach", "--home", str(home.root)]
    run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    try:
        # Look for the yard even if the start failed, because another process may have started it first.
        return find_yard(home)
    except NotFound as error:
        raise Unavailable(f"No yard runs on {home.root}, and none could be started:\n{run.stderr.strip()}") from error


def client_environment(
    connection: YardConnection,
    *,
    keys: KeyPair | None = None,
    https: bool = False,
    current: Mapping[str, str],
) -> ClientEnvironment:
    """Return the environment of a client that uses the credentials of the administrator or a given key pair.

    With a key pair, no variable names a file in the home folder, because other users may not be able to read it.
    `current` is the environment that the result extends: if it sets a proxy, the address of the yard becomes an
    exception; endpoints of single services are unset.
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
    if keys is None:
        # Needed even with http: the sagemaker SDK calls STS over https.
        variables["AWS_CA_BUNDLE"] = str(connection.home.ca_bundle)
    if keys is None and https:
        # obstore reads this variable only.
        variables["SSL_CERT_FILE"] = str(connection.home.ca_bundle)
    if not https:
        # Without it, obstore refuses plain http.
        variables["AWS_ALLOW_HTTP"] = "true"
    variables |= _proxy_exceptions(variables["AWS_ENDPOINT_URL"], current)
    per_service = sorted(name for name in current if name.startswith("AWS_ENDPOINT_URL_"))
    return ClientEnvironment(variables, (*CONFLICTING_VARIABLES, *per_service))


def _proxy_exceptions(address: str, current: Mapping[str, str]) -> dict[str, str]:
    names_set = {name.lower() for name, value in current.items() if value}
    if not names_set.intersection(_PROXIES):
        return {}
    host = urlsplit(address).hostname or ""
    known = current.get("no_proxy") or current.get("NO_PROXY") or ""
    names = [name.strip() for name in known.split(",") if name.strip()]
    joined = ",".join(names if host in names else [*names, host])
    return {"no_proxy": joined, "NO_PROXY": joined}

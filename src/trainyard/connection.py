"""Finding the yard from a client on the same machine: its home folder, its address, and who one is to it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trainyard.foundation.errors import NotFound
from trainyard.foundation.home import Credentials, Home, Runtime

if TYPE_CHECKING:
    from trainyard.wire.client import Client

HOME_VARIABLE = "TRAINYARD_HOME"

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


@dataclass(frozen=True, slots=True)
class Connection:
    """A running yard, and the administrator of its home folder."""

    home: Home
    runtime: Runtime
    credentials: Credentials

    def client(self) -> "Client":
        """Calls to the yard as that administrator; closed by who asked for it."""
        from trainyard.wire.client import Client

        credentials = self.credentials
        return Client(self.runtime.http, credentials.access_key_id, credentials.secret_access_key, credentials.region)


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

"""How a client finds a yard: the home folder, the address, and the credentials."""

import contextlib
import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from trainyard._sdk.profiles import Profile, current_profile, profiles_of, selected_profile
from trainyard._sdk.user_folders import cache_folder
from trainyard.foundation.arns import role_arn
from trainyard.foundation.errors import NotFound, NotPermitted, Unavailable
from trainyard.foundation.home import Credentials, Home, Runtime

if TYPE_CHECKING:
    from trainyard._sdk.storage.bucket_owner import OwnerCheckedClient

HOME_VARIABLE = "TRAINYARD_HOME"
# The address of a yard for Trainyard alone; AWS_ENDPOINT_URL is that for all AWS clients.
ENDPOINT_VARIABLE = "TRAINYARD_ENDPOINT"
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

PROXIES = ("http_proxy", "https_proxy", "all_proxy")


class Api(Protocol):
    """Calls the services of a yard. `wire.client.Client` documents the methods."""

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]: ...

    def stream(self, service: str, operation: str, **params: Any) -> AbstractContextManager[Iterator[bytes]]: ...


@dataclass(frozen=True, slots=True)
class Access:
    """The address of a yard, and the credentials for it.

    `models` is the folder with cached service models, which the client adds to if it `owns_models`.
    """

    url: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    region: str
    session_token: str | None = field(default=None, repr=False)
    ca_bundle: Path | None = None
    models: Path | None = None
    owns_models: bool = False

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
            models=Models(self.models, writes=self.owns_models),
        )
        return OwnerCheckedClient(client)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """The key pair of a user."""

    access_key_id: str
    secret_access_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientTarget:
    """What AWS clients need to know to use a yard as one user.

    `role` is the ARN of the role for the user's jobs. `ca_bundle` is None if the certificate of the yard is trusted
    anyway. An address is empty if it is not known.
    """

    http: str
    https: str
    keys: KeyPair
    region: str
    role: str
    ca_bundle: Path | None


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

    @property
    def target(self) -> ClientTarget:
        """What AWS clients need to know to use the yard as the administrator."""
        known = self.credentials
        keys, role = KeyPair(known.access_key_id, known.secret_access_key), role_arn(known.account, known.role)
        return ClientTarget(self.runtime.http, self.runtime.https, keys, known.region, role, self.home.ca_bundle)

    def client(self) -> "OwnerCheckedClient":
        """Return a client with the credentials of the administrator. The caller closes it."""
        return self.access.client()


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
    """Return the access to a yard that an environment names; None for the yard on this machine.

    The profile in TRAINYARD_PROFILE comes first, then the address in TRAINYARD_ENDPOINT, then the AWS variables if they
    are complete, then the current profile.
    """
    if (selected := selected_profile(environment)) is not None:
        return profile_access(selected, environment)
    if endpoint := environment.get(ENDPOINT_VARIABLE):
        return endpoint_access(endpoint, environment)
    access = _access_from_variables(environment, environment.get("AWS_ENDPOINT_URL"))
    if access is None and (current := current_profile(environment)) is not None:
        return profile_access(current, environment)
    return access


def endpoint_access(url: str, environment: Mapping[str, str]) -> Access:
    """Return the access to the yard at an address, with keys of a profile, of the environment, or of the home folder.

    Raises NotPermitted if none of these has keys for it.
    """
    profiles = profiles_of(environment)
    for profile in map(profiles.load, profiles.names()):
        if profile.url.rstrip("/") == url.rstrip("/"):
            return profile_access(profile, environment)
    access = _access_from_variables(environment, url)
    if access is not None:
        return access
    with contextlib.suppress(NotFound):
        local = find_yard(find_home(None, environment))
        if url.rstrip("/") in (local.runtime.http, local.runtime.https):
            return dataclasses.replace(local.access, url=url, ca_bundle=local.home.ca_bundle)
    raise NotPermitted(
        f"There are no keys for {url}: no profile has this address, and AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
        f"are not set; `trainyard login {url}` makes a profile."
    )


def profile_access(profile: Profile, environment: Mapping[str, str]) -> Access:
    """Return the access of a profile. Its client trusts no other authority than that of the yard."""
    authority = profiles_of(environment).authority(profile.name)
    return Access(
        profile.url,
        profile.access_key_id,
        profile.secret_access_key,
        profile.region,
        ca_bundle=authority if authority.exists() else None,
        models=cache_folder(environment) / "models",
        owns_models=True,
    )


def profile_target(environment: Mapping[str, str]) -> ClientTarget | None:
    """Return the yard of the selected or the current profile for AWS clients; None for the yard on this machine."""
    profile = selected_profile(environment) or current_profile(environment)
    if profile is None:
        return None
    bundle = profiles_of(environment).bundle(profile.name)
    is_secure = urlsplit(profile.url).scheme == "https"
    return ClientTarget(
        "" if is_secure else profile.url,
        profile.url if is_secure else "",
        KeyPair(profile.access_key_id, profile.secret_access_key),
        profile.region,
        profile.role,
        bundle if bundle.exists() else None,
    )


def _access_from_variables(environment: Mapping[str, str], url: str | None) -> Access | None:
    access_key_id, secret = (environment.get(name) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
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
        models=cache_folder(environment) / "models",
        owns_models=True,
    )


def start_yard(home: Home) -> YardConnection:
    """Start a yard in the background with `trainyard up --detach`, and wait until it answers."""
    command = [sys.executable, "-m", "trainyard.cli", "up", "--detach", "--home", str(home.root)]
    run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    try:
        # Look for the yard even if the start failed, because another process may have started it first.
        return find_yard(home)
    except NotFound:
        # That there is none says nothing more than the message.
        raise Unavailable(f"No yard runs on {home.root}, and none could be started. {_as_text(run.stderr)}") from None


def _as_text(error: str) -> str:
    """Return what a command printed as its error, without the labels of the lines and on one line."""
    return " ".join(re.sub(r"^\s*(error|why|next): ", "", line).strip() for line in error.splitlines())


def client_environment(
    target: ClientTarget,
    *,
    keys: KeyPair | None = None,
    https: bool = False,
    current: Mapping[str, str],
) -> ClientEnvironment:
    """Return the environment of a client that uses a yard with its keys or a given key pair.

    With a key pair, no variable names a file of this user, because other users may not be able to read it.
    `current` is the environment that the result extends: if it sets a proxy, the address of the yard becomes an
    exception; endpoints of single services are unset.
    """
    used = keys or target.keys
    url = target.https if target.https and (https or not target.http) else target.http
    variables = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": used.access_key_id,
        "AWS_SECRET_ACCESS_KEY": used.secret_access_key,
        "AWS_DEFAULT_REGION": target.region,
        "AWS_REGION": target.region,
        "AWS_EC2_METADATA_DISABLED": "true",
        # Version 3 of the sagemaker SDK looks up the role of a job, and refuses one of another account. The yard checks
        # it when a job is created, and lets the default role stand for roles of accounts that it does not know.
        "SAGEMAKER_VALIDATE_ROLE": "false",
    }
    is_secure = url.startswith("https:")
    if keys is None and target.ca_bundle is not None:
        # Needed even with http: the sagemaker SDK calls STS over https.
        variables["AWS_CA_BUNDLE"] = str(target.ca_bundle)
        # obstore reads this variable only.
        variables |= {"SSL_CERT_FILE": str(target.ca_bundle)} if is_secure else {}
    if not is_secure:
        # Without it, obstore refuses plain http.
        variables["AWS_ALLOW_HTTP"] = "true"
    variables |= _proxy_exceptions(variables["AWS_ENDPOINT_URL"], current)
    per_service = sorted(name for name in current if name.startswith("AWS_ENDPOINT_URL_"))
    return ClientEnvironment(variables, (*CONFLICTING_VARIABLES, *per_service))


def _proxy_exceptions(address: str, current: Mapping[str, str]) -> dict[str, str]:
    names_set = {name.lower() for name, value in current.items() if value}
    if not names_set.intersection(PROXIES):
        return {}
    host = urlsplit(address).hostname or ""
    known = current.get("no_proxy") or current.get("NO_PROXY") or ""
    names = [name.strip() for name in known.split(",") if name.strip()]
    if names == ["*"]:
        # All addresses are exceptions already; beside another name, the asterisk would mean nothing.
        return {}
    joined = ",".join(names if host in names else [*names, host])
    return {"no_proxy": joined, "NO_PROXY": joined}

"""The home folder of a yard: its layout, and the two files with which clients on this machine find the yard.

The server writes here; the command line and the SDK only read. Only the owner has access: the folder has mode 0700 and
its files 0600.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from trainyard.foundation.errors import Corrupt, InvalidRequest, NotFound, NotPermitted
from trainyard.foundation.files import replace_file

# The version of the layout below; raised when an older version could no longer read it.
FORMAT = 1

# What a fresh folder may contain: settings, files of an interrupted first start, and of a newly formatted disk.
_FIRST_START_FILES = frozenset(
    {"settings.toml", "settings.toml.new", "trial.new", "trial", "version.new", "lock", "server.log", "lost+found"}
)
_RESTORE = "Restore the home folder with `trainyard restore`."

T = TypeVar("T", "Runtime", "Credentials", "HomeVersion")


@dataclass(frozen=True, slots=True)
class Runtime:
    """Where a client on this machine reaches a running yard, and which process that is.

    `started` distinguishes a process from a later one with the same pid. `reachable` is the https address for clients
    on other machines, empty if they cannot reach the yard. `sign_in` is the path of a link that signs the
    administrator's browser in to the dashboard, once and soon after the start.
    """

    pid: int
    started: str
    http: str
    https: str
    version: str
    home: str
    reachable: str = ""
    sign_in: str = field(default="", repr=False)

    @classmethod
    def of_this_process(
        cls, *, http: str, https: str, version: str, home: Path, reachable: str = "", sign_in: str = ""
    ) -> Self:
        """Describe this process. Clients reach a yard that listens on every address by the loopback address."""
        pid = os.getpid()
        started = process_start(pid) or ""
        addresses = (_client_address(http), _client_address(https))
        return cls(pid, started, *addresses, version, str(home), reachable, sign_in)

    @property
    def is_alive(self) -> bool:
        """Whether that very process still runs."""
        return process_start(self.pid) == self.started


@dataclass(frozen=True, slots=True)
class Credentials:
    """The first administrator, created at the first start."""

    account: str
    user: str
    role: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    region: str


@dataclass(frozen=True, slots=True)
class HomeVersion:
    """The format of a home folder, and the version of Trainyard that created it."""

    format: int
    made_by: str


@dataclass(frozen=True, slots=True)
class Home:
    """The layout of a home folder. Creating one of these touches nothing."""

    root: Path

    @property
    def version_file(self) -> Path:
        return self.root / "version"

    @property
    def lock_file(self) -> Path:
        return self.root / "lock"

    @property
    def runtime_file(self) -> Path:
        return self.root / "yard.json"

    @property
    def credentials_file(self) -> Path:
        return self.root / "credentials.json"

    @property
    def settings_file(self) -> Path:
        return self.root / "settings.toml"

    @property
    def records_file(self) -> Path:
        return self.root / "records.sqlite"

    @property
    def server_log(self) -> Path:
        return self.root / "server.log"

    @property
    def objects(self) -> Path:
        return self.root / "objects"

    @property
    def keys(self) -> Path:
        """The encryption keys of the objects, and the master key that unlocks them."""
        return self.root / "keys"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics"

    @property
    def jobs(self) -> Path:
        """What the instances of jobs write; link.folders has the layout."""
        return self.root / "jobs"

    @property
    def doorbell(self) -> Path:
        """Where agents ring for a running yard."""
        return self.root / "doorbell"

    @property
    def agents(self) -> Path:
        """Copies of the agent's code, one per version that still runs."""
        return self.root / "agents"

    @property
    def ray(self) -> Path:
        """The files of the Ray engine."""
        return self.root / "ray"

    @property
    def warm(self) -> Path:
        """The sockets of warm workers, one folder per account."""
        return self.root / "warm"

    @property
    def environments(self) -> Path:
        """The cache of environments that jobs installed, one folder per account."""
        return self.root / "environments"

    @property
    def catalog_file(self) -> Path:
        """Prices and instance types that differ from the shipped ones."""
        return self.root / "catalog.toml"

    @property
    def images_file(self) -> Path:
        """What images map to."""
        return self.root / "images.toml"

    @property
    def engines_file(self) -> Path:
        """Which jobs go to which engine."""
        return self.root / "engines.toml"

    @property
    def file_systems_file(self) -> Path:
        """Which folders of this machine file systems map to."""
        return self.root / "file_systems.toml"

    @property
    def certificates(self) -> Path:
        return self.root / "certificates"

    @property
    def ca_file(self) -> Path:
        """The certificate authority of the yard only."""
        return self.certificates / "ca.pem"

    @property
    def ca_bundle(self) -> Path:
        """The yard's authority and those that this machine trusts; AWS_CA_BUNDLE points to it."""
        return self.certificates / "bundle.pem"

    @property
    def cache(self) -> Path:
        """Files that can be created again."""
        return self.root / "cache"

    @property
    def connection(self) -> Path:
        """What `trainyard connect` replaced, kept for `trainyard disconnect`."""
        return self.root / "connection"

    @property
    def restoring(self) -> Path:
        """Where `trainyard restore` unpacks a backup until it is complete."""
        return self.root / ".restoring"

    @property
    def is_being_restored(self) -> bool:
        """Whether a restore is running here, or was interrupted."""
        return self.restoring.is_dir() and not self.version_file.exists()

    @property
    def folders(self) -> tuple[Path, ...]:
        return (self.objects, self.logs, self.metrics, self.jobs, self.agents, self.certificates, self.cache)

    def version(self) -> HomeVersion | None:
        """Return who created this folder; None if it is missing or fresh.

        Raises InvalidRequest if the folder belongs to something else.
        """
        try:
            names = {entry.name for entry in os.scandir(self.root)}
        except FileNotFoundError:
            return None
        except NotADirectoryError as error:
            raise InvalidRequest(f"{self.root} is not a folder; choose another with --home.") from error
        except PermissionError as error:
            raise InvalidRequest(f"{self.root} cannot be read by this user; choose another with --home.") from error
        if self.version_file.name in names:
            return _read_home_version(self.version_file)
        if self.restoring.name in names:
            raise InvalidRequest(f"A restore into {self.root} was interrupted; run `trainyard restore` again.")
        if names - _FIRST_START_FILES:
            raise InvalidRequest(
                f"{self.root} is not empty and not a home folder of Trainyard, so nothing was written to it; "
                "choose another with --home."
            )
        return None

    def check(self) -> HomeVersion | None:
        """Return the version, or raise InvalidRequest if a newer Trainyard created this home. Changes nothing."""
        version = self.version()
        if version is not None and version.format > FORMAT:
            raise InvalidRequest(
                f"The home folder {self.root} was made by Trainyard {version.made_by} (format {version.format}); "
                f"this one reads format {FORMAT}. Install trainyard>={version.made_by}, or choose another folder with "
                "--home. Nothing was changed."
            )
        return version

    def runtime(self) -> Runtime | None:
        """Return how to reach the running yard; None if none runs, even if a killed yard left its file."""
        try:
            runtime = _build(Runtime, _read_object(self.runtime_file), self.runtime_file)
        except (OSError, Corrupt):
            return None
        return runtime if runtime.is_alive else None

    def write_runtime(self, runtime: Runtime) -> None:
        replace_file(self.runtime_file, _json(dataclasses.asdict(runtime)))

    def remove_runtime(self) -> None:
        self.runtime_file.unlink(missing_ok=True)

    def credentials(self) -> Credentials:
        """Return the credentials. Raises NotFound before the first start."""
        try:
            values = _read_object(self.credentials_file)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound("home folder", str(self.root)) from error
        except PermissionError as error:
            raise NotPermitted(f"Only its owner can read {self.credentials_file}; you are another user.") from error
        return _build(Credentials, values, self.credentials_file)

    def write_credentials(self, credentials: Credentials) -> None:
        replace_file(self.credentials_file, _json(dataclasses.asdict(credentials)))

    def write_version(self, version: HomeVersion) -> None:
        replace_file(self.version_file, _json(dataclasses.asdict(version)))


def process_start(pid: int) -> str | None:
    """Return the boot id and the clock tick of its start, which are unique for a pid; None if the process is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    # The second field is the command in parentheses, which may itself contain spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    state, tick = fields[0], fields[19]
    return None if state in "ZX" else f"{boot}:{tick}"


def _client_address(address: str) -> str:
    return address.replace("//0.0.0.0", "//127.0.0.1").replace("//[::]", "//[::1]")


def _read_home_version(file: Path) -> HomeVersion:
    version = _build(HomeVersion, _read_object(file), file)
    if not isinstance(version.format, int):
        raise Corrupt(f'{file} has the format "{version.format}", which is not a number. {_RESTORE}')
    return version


def _read_object(file: Path) -> Mapping[str, Any]:
    try:
        values = json.loads(file.read_bytes())
    except ValueError as error:
        raise Corrupt(f"{file} is damaged: {error}. {_RESTORE}") from error
    if not isinstance(values, dict):
        raise Corrupt(f"{file} is damaged: it is not a JSON object. {_RESTORE}")
    return values


def _build(cls: type[T], values: Mapping[str, Any], file: Path) -> T:
    fields = dataclasses.fields(cls)
    missing = [f.name for f in fields if f.name not in values and f.default is dataclasses.MISSING]
    if missing:
        raise Corrupt(f"{file} lacks {', '.join(missing)}. {_RESTORE}")
    return cls(**{f.name: values[f.name] for f in fields if f.name in values})


def _json(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, indent=2).encode() + b"\n"

"""Whether a home folder is sound, for `trainyard doctor`."""

import shutil
import stat
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

from trainyard.engines.choosing import EngineRules
from trainyard.foundation.errors import InvalidRequest, TrainyardError
from trainyard.foundation.home import Home
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.server.certificates import RENEW_BEFORE, certificate_expiry
from trainyard.server.engines import engine_names, require_parts
from trainyard.server.records.sql import open_records
from trainyard.server.settings import ServerSettings

_LEAST_DISK = 1024**3
_MOST_PROBLEMS = 20  # to be named one by one


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at, and what follows from it."""

    name: str
    ok: bool
    detail: str
    consequence: str


def check_home(home: Home, settings: ServerSettings, *, now: datetime, thorough: bool) -> list[Check]:
    """Every check in turn; one that cannot even be made counts as failed."""
    checks: list[Callable[[], Check]] = [
        lambda: _check_version(home),
        lambda: _check_privacy(home),
        lambda: _check_yard(home),
        lambda: _check_credentials(home),
        lambda: _check_records(home, settings),
        lambda: _check_objects(home, settings, thorough=thorough),
        lambda: _check_certificates(home, now=now),
        lambda: _check_disk(home),
        lambda: _check_rules(home, settings),
    ]
    engines = settings.engines.split(",")
    return [*map(_attempt, checks), *(_check_engine(name.strip(), settings) for name in engines)]


def _attempt(check: Callable[[], Check]) -> Check:
    try:
        return check()
    except TrainyardError as error:
        return Check(
            "home folder", ok=False, detail=error.message, consequence="The yard may not start or not serve it."
        )


def _check_version(home: Home) -> Check:
    version = home.check()
    detail = f"format {version.format}, made by Trainyard {version.made_by}" if version else "not laid out yet"
    return Check("version", ok=True, detail=detail, consequence="This version of Trainyard can use it.")


def _check_privacy(home: Home) -> Check:
    mode = stat.S_IMODE(home.root.stat().st_mode)
    if mode & 0o077:
        return Check("privacy", False, f"mode {mode:04o}", f"Others on this machine may look in: chmod 700 {home.root}")
    return Check("privacy", True, f"mode {mode:04o}", "Only its owner sees keys and objects.")


def _check_yard(home: Home) -> Check:
    runtime = home.runtime()
    if runtime is None:
        return Check("yard", True, "not running", "`trainyard up` starts it.")
    return Check("yard", True, f"runs as process {runtime.pid} at {runtime.http}", "`trainyard down` stops it.")


def _check_credentials(home: Home) -> Check:
    if not home.credentials_file.exists():
        return Check("credentials", True, "none yet", "The first start makes them.")
    credentials = home.credentials()
    return Check("credentials", True, f"{credentials.user} of account {credentials.account}", "`trainyard env` works.")


def _check_records(home: Home, settings: ServerSettings) -> Check:
    if not settings.records and not home.records_file.exists():
        return Check("records", True, "none yet", "The first start makes them.")
    with closing(open_records(settings.records or f"sqlite:///{home.records_file}")) as records:
        count = sum(1 for _ in records.export())
    return Check("records", True, f"{count} rows were read", "Nothing that was acknowledged is lost.")


def _check_objects(home: Home, settings: ServerSettings, *, thorough: bool) -> Check:
    if settings.objects:
        return Check("objects", True, f"kept in {settings.objects}", "That S3 looks after them.")
    if not (home.objects / "index.sqlite").exists():
        return Check("objects", True, "none yet", "The first start makes the index.")
    with closing(FilesystemObjects(home.objects)) as objects:
        problems = objects.verify(deep=thorough)
    if not problems:
        how = "every byte was compared with its checksum" if thorough else "every file is there and has its size"
        return Check("objects", True, how, "All objects can be read.")
    more = f" … and {len(problems) - _MOST_PROBLEMS} more" if len(problems) > _MOST_PROBLEMS else ""
    detail = " ".join(problems[:_MOST_PROBLEMS]) + more
    return Check(
        "objects", False, detail, "Bring lost objects back with `trainyard restore`; `trainyard gc` frees space."
    )


def _check_certificates(home: Home, *, now: datetime) -> Check:
    if not home.ca_file.exists():
        return Check("certificates", True, "none yet", "The first start makes them.")
    expiry = certificate_expiry(home)
    detail = f"server until {expiry.server:%Y-%m-%d}, authority until {expiry.authority:%Y-%m-%d}"
    if expiry.server - RENEW_BEFORE < now:
        return Check("certificates", False, detail, "https will fail soon; the next start of the yard renews it.")
    return Check("certificates", True, detail, "https works for clients that trust the yard's authority.")


def _check_engine(name: str, settings: ServerSettings) -> Check:
    try:
        require_parts(name, settings)
    except InvalidRequest as error:
        return Check(f"engine {name}", False, error.message, "The yard does not start with it.")
    return Check(f"engine {name}", True, "can be used", "`trainyard engines` tells what it does and has.")


def _check_rules(home: Home, settings: ServerSettings) -> Check:
    rules, known = EngineRules(home.engines_file).read(), engine_names(settings)
    # An engine of somebody's own has the name that it says once it is there.
    has_own = any(":" in name for name in known)
    missing = sorted({rule.engine for rule in rules if not has_own and rule.engine not in known})
    if missing:
        detail = f"name {', '.join(missing)}, which the setting `engines` does not"
        return Check("engine rules", False, detail, "Jobs for which such a rule of engines.toml holds are refused.")
    if not rules:
        return Check("engine rules", True, "none", f"All jobs go to the engine {known[0]}, unless a tag names another.")
    return Check("engine rules", True, f"{len(rules)} in engines.toml", "`trainyard engines check` tries them.")


def _check_disk(home: Home) -> Check:
    free = shutil.disk_usage(home.root).free
    detail = f"{free / 1024**3:.1f} GiB free"
    if free < _LEAST_DISK:
        return Check("disk", False, detail, "Writes will soon be refused; make room, or try `trainyard gc`.")
    return Check("disk", True, detail, "There is room for more.")

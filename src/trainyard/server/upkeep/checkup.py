"""Checks of a home folder, for `trainyard doctor`."""

import shutil
import stat
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

from trainyard.engines.selection import EngineRules
from trainyard.foundation.errors import InvalidRequest, TrainyardError
from trainyard.foundation.home import Home
from trainyard.link.warm import read_faults
from trainyard.objects.encryption.keyring import Keyring
from trainyard.server.engines import engine_names, require_engine
from trainyard.server.http.certificates import RENEW_BEFORE, certificate_expiry
from trainyard.server.records.sql import open_records
from trainyard.server.settings import ServerSettings
from trainyard.server.storage import master_key_file, open_folder

_MIN_FREE_BYTES = 1024**3
_MAX_NAMED_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class HomeCheck:
    """The result of one check, and what it means for the user."""

    name: str
    ok: bool
    detail: str
    consequence: str


def check_home(home: Home, settings: ServerSettings, *, now: datetime, thorough: bool) -> list[HomeCheck]:
    """Run every check. A check that cannot run counts as failed."""
    checks: list[Callable[[], HomeCheck]] = [
        lambda: _check_version(home),
        lambda: _check_privacy(home),
        lambda: _check_yard(home),
        lambda: _check_credentials(home),
        lambda: _check_records(home, settings),
        lambda: _check_keys(home, settings),
        lambda: _check_objects(home, settings, thorough=thorough),
        lambda: _check_certificates(home, now=now),
        lambda: _check_disk(home),
        lambda: _check_rules(home, settings),
        lambda: _check_warm_workers(home),
    ]
    engines = settings.engines.split(",")
    return [*map(_run_check, checks), *(_check_engine(name.strip(), settings) for name in engines)]


def _run_check(check: Callable[[], HomeCheck]) -> HomeCheck:
    try:
        return check()
    except TrainyardError as error:
        return HomeCheck(
            "home folder", ok=False, detail=error.message, consequence="The yard may not start, or may not serve it."
        )


def _check_version(home: Home) -> HomeCheck:
    version = home.check()
    detail = f"format {version.format}, made by Trainyard {version.made_by}" if version else "not laid out yet"
    return HomeCheck("version", ok=True, detail=detail, consequence="This version of Trainyard can use it.")


def _check_privacy(home: Home) -> HomeCheck:
    mode = stat.S_IMODE(home.root.stat().st_mode)
    if mode & 0o077:
        return HomeCheck(
            "privacy", False, f"mode {mode:04o}", f"Other users of this machine can read it: chmod 700 {home.root}"
        )
    return HomeCheck("privacy", True, f"mode {mode:04o}", "Only its owner can read keys and objects.")


def _check_yard(home: Home) -> HomeCheck:
    runtime = home.runtime()
    if runtime is None:
        return HomeCheck("yard", True, "not running", "`trainyard up` starts it.")
    return HomeCheck("yard", True, f"running as process {runtime.pid} at {runtime.http}", "`trainyard down` stops it.")


def _check_credentials(home: Home) -> HomeCheck:
    if not home.credentials_file.exists():
        return HomeCheck("credentials", True, "none yet", "The first start creates them.")
    credentials = home.credentials()
    return HomeCheck(
        "credentials", True, f"{credentials.user} of account {credentials.account}", "`trainyard env` works."
    )


def _check_records(home: Home, settings: ServerSettings) -> HomeCheck:
    if not settings.records and not home.records_file.exists():
        return HomeCheck("records", True, "none yet", "The first start creates them.")
    with closing(open_records(settings.records or f"sqlite:///{home.records_file}")) as records:
        count = sum(1 for _ in records.export())
    return HomeCheck("records", True, f"all {count} rows are readable", "Nothing that was acknowledged is lost.")


def _check_keys(home: Home, settings: ServerSettings) -> HomeCheck:
    with closing(Keyring(home.keys, master_key_file=master_key_file(home, settings))) as keyring:
        if settings.objects or not keyring.exists:
            return HomeCheck("encryption", True, "no keys yet", "The first encrypted object creates them.")
        try:
            keyring.check()
        except TrainyardError as error:
            return HomeCheck("encryption", False, error.message, "Encrypted objects cannot be read or written.")
        return HomeCheck("encryption", True, f"unlocked by {keyring.master_key_file}", "Encrypted objects can be read.")


def _check_objects(home: Home, settings: ServerSettings, *, thorough: bool) -> HomeCheck:
    if settings.objects:
        return HomeCheck("objects", True, f"stored in {settings.objects}", "That S3 is responsible for them.")
    if not (home.objects / "index.sqlite").exists():
        return HomeCheck("objects", True, "none yet", "The first start creates the index.")
    with closing(open_folder(home, settings)) as objects:
        problems = objects.verify(deep=thorough)
    if not problems:
        how = "every byte matches its checksum" if thorough else "every file exists and has its size"
        return HomeCheck("objects", True, how, "All objects can be read.")
    more = f" … and {len(problems) - _MAX_NAMED_PROBLEMS} more" if len(problems) > _MAX_NAMED_PROBLEMS else ""
    detail = " ".join(problems[:_MAX_NAMED_PROBLEMS]) + more
    return HomeCheck(
        "objects", False, detail, "Restore lost objects with `trainyard restore`; free space with `trainyard gc`."
    )


def _check_certificates(home: Home, *, now: datetime) -> HomeCheck:
    if not home.ca_file.exists():
        return HomeCheck("certificates", True, "none yet", "The first start creates them.")
    expiry = certificate_expiry(home)
    detail = f"server until {expiry.server:%Y-%m-%d}, authority until {expiry.authority:%Y-%m-%d}"
    if expiry.server - RENEW_BEFORE < now:
        return HomeCheck("certificates", False, detail, "https will fail soon; restart the yard to renew it.")
    return HomeCheck("certificates", True, detail, "https works for clients that trust the yard's authority.")


def _check_engine(name: str, settings: ServerSettings) -> HomeCheck:
    try:
        require_engine(name, settings)
    except InvalidRequest as error:
        return HomeCheck(f"engine {name}", False, error.message, "The yard cannot start with it.")
    return HomeCheck(f"engine {name}", True, "available", "`trainyard engines` shows what it supports.")


def _check_rules(home: Home, settings: ServerSettings) -> HomeCheck:
    rules, known = EngineRules(home.engines_file).read(), engine_names(settings)
    # The name of a custom engine is known only once it runs.
    has_own = any(":" in name for name in known)
    missing = sorted({rule.engine for rule in rules if not has_own and rule.engine not in known})
    if missing:
        detail = f"they name {', '.join(missing)}, which the setting `engines` does not"
        return HomeCheck("engine rules", False, detail, "Jobs that match such a rule of engines.toml are refused.")
    if not rules:
        return HomeCheck(
            "engine rules", True, "none", f"All jobs go to the engine {known[0]}, unless a tag names another."
        )
    return HomeCheck("engine rules", True, f"{len(rules)} in engines.toml", "`trainyard engines check` tests them.")


def _check_warm_workers(home: Home) -> HomeCheck:
    faults = read_faults(home.warm)
    if faults:
        return HomeCheck("warm workers", False, faults[0], "Programs of that environment start cold.")
    return HomeCheck("warm workers", True, "no failures", "Programs start warm where that is possible.")


def _check_disk(home: Home) -> HomeCheck:
    free = shutil.disk_usage(home.root).free
    detail = f"{free / 1024**3:.1f} GiB free"
    if free < _MIN_FREE_BYTES:
        return HomeCheck("disk", False, detail, "Writes will soon be refused; free some space, or run `trainyard gc`.")
    return HomeCheck("disk", True, detail, "There is room for more.")

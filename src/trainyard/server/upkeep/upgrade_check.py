"""What happens when this version of Trainyard opens a home folder, for `trainyard upgrade-check`. Changes nothing."""

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from trainyard import __version__
from trainyard.engines.local.code import AgentCode
from trainyard.foundation.errors import TrainyardError
from trainyard.foundation.home import Home
from trainyard.link.file_locks import is_held
from trainyard.link.specs import SUPPORTED_PROTOCOLS
from trainyard.objects.index_schema import VERSION
from trainyard.server.records.database import open_database
from trainyard.server.records.migrations import pending_migrations
from trainyard.server.settings import ServerSettings
from trainyard.server.upkeep.checkup import HomeCheck

_PROTOCOL = re.compile(r"^PROTOCOL = (\d+)", re.MULTILINE)


def check_upgrade(home: Home, settings: ServerSettings) -> list[HomeCheck]:
    """Run every check. One that fails says why this version cannot open the home folder."""
    checks: dict[str, Callable[[], HomeCheck]] = {
        "home folder": lambda: _check_home(home),
        "records": lambda: _check_records(home, settings),
        "objects": lambda: _check_objects(home, settings),
        "yard": lambda: _check_yard(home),
        "agents": lambda: _check_agents(home),
    }
    return [_run(name, check) for name, check in checks.items()]


def _run(name: str, check: Callable[[], HomeCheck]) -> HomeCheck:
    try:
        return check()
    except TrainyardError as error:
        return HomeCheck(name, ok=False, detail=error.message, consequence="This version cannot open the home folder.")


def _check_home(home: Home) -> HomeCheck:
    version = home.check()
    if version is None:
        return HomeCheck("home folder", ok=True, detail="not created yet", consequence="`trainyard up` creates it.")
    return HomeCheck(
        "home folder",
        ok=True,
        detail=f"format {version.format}, made by Trainyard {version.made_by}; this is Trainyard {__version__}",
        consequence="This version can open it.",
    )


def _check_records(home: Home, settings: ServerSettings) -> HomeCheck:
    if not settings.records and not home.records_file.exists():
        return HomeCheck("records", ok=True, detail="none yet", consequence="The first start creates them.")
    with closing(open_database(settings.records or f"sqlite:///{home.records_file}")) as database:
        pending = pending_migrations(database)
    if not pending:
        return HomeCheck("records", ok=True, detail="the schema is current", consequence="No migration runs.")
    names = "; ".join(pending)
    return HomeCheck(
        "records",
        ok=True,
        detail=f"{len(pending)} {'migration' if len(pending) == 1 else 'migrations'} to run: {names}",
        consequence="The next start runs them; older versions cannot open the records afterwards. Back up first: "
        "`trainyard backup TARGET`.",
    )


def _check_objects(home: Home, settings: ServerSettings) -> HomeCheck:
    index = home.objects / "index.sqlite"
    if settings.objects or not index.exists():
        detail = f"in {settings.objects}" if settings.objects else "none yet"
        return HomeCheck("objects", ok=True, detail=detail, consequence="Nothing is changed.")
    with closing(sqlite3.connect(f"{index.as_uri()}?mode=ro", uri=True)) as connection:
        found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if found > VERSION:
        return HomeCheck(
            "objects",
            ok=False,
            detail=f"the index has version {found}; this Trainyard reads {VERSION}",
            consequence="A newer Trainyard is needed.",
        )
    return HomeCheck("objects", ok=True, detail=f"the index has version {found}", consequence="This version reads it.")


def _check_yard(home: Home) -> HomeCheck:
    runtime = home.runtime()
    if runtime is None:
        return HomeCheck("yard", ok=True, detail="not running", consequence="The next start uses this version.")
    if runtime.version == __version__:
        return HomeCheck("yard", ok=True, detail=f"runs {__version__}", consequence="It has this version already.")
    return HomeCheck(
        "yard",
        ok=True,
        detail=f"runs {runtime.version}, and {__version__} is installed",
        consequence="`trainyard down && trainyard up --detach` upgrades it; jobs continue meanwhile.",
    )


def _check_agents(home: Home) -> HomeCheck:
    folders = sorted(home.agents.iterdir()) if home.agents.is_dir() else []
    in_use = [folder for folder in folders if is_held(AgentCode(folder).lock_file)]
    strange = sorted({_version_of(folder) for folder in in_use if _protocol_of(folder) not in SUPPORTED_PROTOCOLS})
    others = sorted({_version_of(folder) for folder in in_use} - {__version__})
    if strange:
        return HomeCheck(
            "agents",
            ok=False,
            detail=f"agents of {', '.join(strange)} run, which this version does not understand",
            consequence="Wait until their jobs have ended, or stop them; then upgrade.",
        )
    if not others:
        detail = f"code of {__version__} in use" if in_use else "none run"
        return HomeCheck("agents", ok=True, detail=detail, consequence="Agents and yard have the same version.")
    return HomeCheck(
        "agents",
        ok=True,
        detail=f"agents of {', '.join(others)} run",
        consequence="They keep their own code until their jobs end, and this version understands them.",
    )


def _version_of(folder: Path) -> str:
    """Return the version in the name of a copy of the agent's code, which ends in a fingerprint."""
    return folder.name.rpartition("-")[0]


def _protocol_of(folder: Path) -> int | None:
    """Return the protocol that a copy of the agent's code speaks; None if it is not to be found."""
    try:
        text = (folder / "trainyard" / "link" / "contract.py").read_text()
    except OSError:
        return None
    found = _PROTOCOL.search(text)
    return int(found[1]) if found else None

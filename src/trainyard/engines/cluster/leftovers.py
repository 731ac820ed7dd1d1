"""What a yard has left on a node and nobody will ever ask for: it was cut off, and the yard went on without it."""

import logging
import time
from datetime import timedelta
from pathlib import Path

from trainyard.engines.local import LocalEngine
from trainyard.foundation.confined import remove_tree
from trainyard.foundation.errors import TrainyardError
from trainyard.link.folders import AttemptRef, InstanceFolder
from trainyard.link.lease import Lease

KEPT_S = 3600.0  # after its lease, in which a yard that is back may still want what is here
_LOOK_S = 600.0
_PATIENCE = timedelta(seconds=1)  # because an instance that is wanted waits for it

log = logging.getLogger(__name__)


def sweep_leftovers(jobs: Path, engine: LocalEngine, *, kept_s: float = KEPT_S, look_s: float = _LOOK_S) -> None:
    """Remove attempts whose leases ran out long ago, and what is left of those that were forgotten; now and then."""
    mark = jobs.with_name("swept")
    if mark.exists() and time.time() - mark.stat().st_mtime < look_s:
        return
    mark.touch()
    for attempt in _attempts(jobs):
        if _is_left_over(attempt, jobs, kept_s):
            try:
                engine.end(attempt, patience=_PATIENCE)
                remove_tree(attempt.folder(jobs))
                attempt.folder(jobs).parent.rmdir()
            except (TrainyardError, OSError) as error:  # another attempt of the job is there, or something resists
                log.info("leftover stays", extra={"attempt": str(attempt), "why": str(error)})


def _attempts(jobs: Path) -> list[AttemptRef]:
    return [
        AttemptRef(job.name, int(folder.name))
        for job in sorted(jobs.iterdir())
        for folder in sorted(job.iterdir())
        if folder.name.isdecimal()
    ]


def _is_left_over(attempt: AttemptRef, jobs: Path, kept_s: float) -> bool:
    if time.time() - attempt.folder(jobs).stat().st_mtime < kept_s:
        return False
    folders = attempt.instances(jobs)
    if not folders:
        return (attempt.folder(jobs) / "ended").exists()
    own = [folder for folder in folders if folder.spec.exists()]
    return bool(own) and all(_has_run_out(folder, kept_s) for folder in own)


def _has_run_out(folder: InstanceFolder, kept_s: float) -> bool:
    """One without a lease is kept for ever: nothing tells whether somebody wants it."""
    if not folder.lease.exists() or Lease.of(folder).left_s > 0:
        return False
    return time.time() - folder.lease.stat().st_ctime > kept_s

"""Removes what a yard has left on a node that was cut off, after the yard continued without it."""

import logging
import time
from datetime import timedelta
from pathlib import Path

from trainyard.engines.local import LocalEngine
from trainyard.foundation.confined import remove_tree
from trainyard.foundation.errors import TrainyardError
from trainyard.link.folders import AttemptRef, InstanceFolder
from trainyard.link.lease import Lease

# How long an attempt is kept after its lease expired: the yard may return and want its last reports.
RETENTION_S = 3600.0
_SWEEP_INTERVAL_S = 600.0
# Short, because an instance that is being started waits for it.
_PATIENCE = timedelta(seconds=1)

log = logging.getLogger(__name__)


def sweep_leftovers(
    jobs: Path, engine: LocalEngine, *, retention_s: float = RETENTION_S, interval_s: float = _SWEEP_INTERVAL_S
) -> None:
    """Remove attempts whose leases expired long ago, and what is left of forgotten ones, once in `interval_s`."""
    mark = jobs.with_name("swept")
    if mark.exists() and time.time() - mark.stat().st_mtime < interval_s:
        return
    mark.touch()
    for attempt in _attempts(jobs):
        if _is_left_over(attempt, jobs, retention_s):
            try:
                engine.end(attempt, patience=_PATIENCE)
                remove_tree(attempt.folder(jobs))
                attempt.folder(jobs).parent.rmdir()
            except (TrainyardError, OSError) as error:
                # Another attempt of the job is there, or a process does not end.
                log.info("leftovers of an attempt stay", extra={"attempt": str(attempt), "why": str(error)})


def _attempts(jobs: Path) -> list[AttemptRef]:
    return [
        AttemptRef(job.name, int(folder.name))
        for job in sorted(jobs.iterdir())
        for folder in sorted(job.iterdir())
        if folder.name.isdecimal()
    ]


def _is_left_over(attempt: AttemptRef, jobs: Path, retention_s: float) -> bool:
    if time.time() - attempt.folder(jobs).stat().st_mtime < retention_s:
        return False
    folders = attempt.instances(jobs)
    if not folders:
        return (attempt.folder(jobs) / "ended").exists()
    own = [folder for folder in folders if folder.spec.exists()]
    return bool(own) and all(_has_run_out(folder, retention_s) for folder in own)


def _has_run_out(folder: InstanceFolder, retention_s: float) -> bool:
    """An instance without a lease is kept for ever: nobody knows whether it is still wanted."""
    if not folder.lease.exists() or Lease.of(folder).left_s > 0:
        return False
    return time.time() - folder.lease.stat().st_ctime > retention_s

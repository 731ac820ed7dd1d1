"""The agent's program: `python -m trainyard.instance.agent.main <instance folder>`.

It prepares, runs and reports one instance, and then ends. The yard may come and go meanwhile. When the agent itself is
killed, the program dies with it, and the yard finds a spool that no verdict closes.
"""

import logging
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from trainyard.foundation.files import remove_tree
from trainyard.foundation.journal import write_journal
from trainyard.instance.agent.disk import reserve_of
from trainyard.instance.agent.failure import failure_before_program, why_it_cannot_run
from trainyard.instance.agent.lifecycle import FAILED, Instance, Verdict
from trainyard.instance.agent.orders import Orders
from trainyard.instance.agent.ports import held_ports
from trainyard.instance.agent.reports import Reports
from trainyard.instance.agent.supervision import boottime
from trainyard.instance.agent.tail import LogTail
from trainyard.link.folders import InstanceFolder
from trainyard.link.mailbox import Mailbox
from trainyard.link.specs import read_spec
from trainyard.link.spool import SpoolWriter, last_frame

_TRIES = 60  # seconds in which a disk may take the verdict after all

log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """0 when the verdict is in the spool, whatever it is."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m trainyard.instance.agent.main INSTANCE-FOLDER\n")
        return 2
    write_journal(sys.stderr, "info")
    os.umask(0o022)
    folder = InstanceFolder.at(arguments[0])
    if last_frame(folder.spool) is not None:
        log.error("this instance was started before", extra={"folder": str(folder.root)})
        return 1
    with SpoolWriter(folder.spool) as spool:
        reports = Reports(spool)
        return 0 if _tell(_verdict(folder, reports), reports, folder=folder) else 1


def _verdict(folder: InstanceFolder, reports: Reports) -> Verdict:
    try:
        spec = read_spec(folder.root)
        if spec.doorbell:
            reports.ring_at(Path(spec.doorbell), spec.job_id)
        instance = Instance(folder, spec, reports=reports, orders=Orders(Mailbox(folder.mailbox), monotonic=boottime))
        log.info("instance started", extra={"job": spec.job_name, "instance": spec.instance})
        with held_ports(spec):
            return instance.live()
    except Exception as error:
        log.exception("the agent failed")
        failure = failure_before_program(why_it_cannot_run(error), instance=folder.root.name, tail=LogTail())
        return Verdict.of(failure)


def _tell(verdict: Verdict, reports: Reports, *, folder: InstanceFolder) -> bool:
    """Whether the verdict could be written; a full disk is relieved of what the job no longer needs."""
    if verdict.outcome == FAILED and reserve_of(folder.root).is_touched:
        _relieve(folder)  # the verdict may still find room, but not what the yard has to write of it
    for _ in range(_TRIES):
        try:
            reports.ended(verdict.outcome, verdict.reason, card=verdict.card)
        except OSError as error:
            log.error("the verdict cannot be written", extra={"why": error.strerror})
            _relieve(folder)
            time.sleep(1)
        else:
            log.info("instance ended", extra={"outcome": verdict.outcome})
            return True
    return False


def _relieve(folder: InstanceFolder) -> None:
    for unneeded in (folder.scratch, folder.ml):
        with suppress(OSError):
            remove_tree(unneeded)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

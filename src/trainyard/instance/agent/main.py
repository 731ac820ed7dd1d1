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
from typing import NoReturn

from trainyard.foundation.clock import boottime
from trainyard.foundation.confined import remove_tree
from trainyard.foundation.disk import reserve_of
from trainyard.foundation.journal import write_journal
from trainyard.instance.agent.failure import failure_before_program, why_it_cannot_run
from trainyard.instance.agent.lifecycle import FAILED, STOPPED, Instance, Verdict
from trainyard.instance.agent.orders import Orders
from trainyard.instance.agent.ports import held_ports
from trainyard.instance.agent.reports import Reports
from trainyard.instance.agent.tail import LogTail
from trainyard.link.contract import LEASE, InstanceSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.lease import Lease, mark_taken
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
        verdict = _verdict(folder, reports)
        if verdict.reason == LEASE:
            return _leave(folder, reports)
        return 0 if _tell(verdict, reports, folder=folder) else 1


def _verdict(folder: InstanceFolder, reports: Reports) -> Verdict:
    try:
        spec = read_spec(folder.root)
        if spec.doorbell:
            reports.ring_at(Path(spec.doorbell), spec.job_id)
        orders = _orders(folder, spec)
        instance = Instance(folder, spec, reports=reports, orders=orders)
        log.info("instance started", extra={"job": spec.job_name, "instance": spec.instance})
        with held_ports(spec):
            verdict = instance.live()
        return Verdict(STOPPED, LEASE) if orders.is_taken else verdict
    except Exception as error:
        log.exception("the agent failed")
        failure = failure_before_program(why_it_cannot_run(error), instance=folder.root.name, tail=LogTail())
        return Verdict.of(failure)


def _orders(folder: InstanceFolder, spec: InstanceSpec) -> Orders:
    mailbox = Mailbox(folder.mailbox)
    if not spec.lease_s:
        return Orders(mailbox, monotonic=boottime)
    return Orders(
        mailbox,
        monotonic=boottime,
        lease=Lease.of(folder),
        grace_s=min(spec.grace_s, spec.lease_s / 2),
        give_up=lambda: _give_up(folder),
    )


def _give_up(folder: InstanceFolder) -> NoReturn:
    """End at once, and the program with it: from now on the job may run elsewhere, and nothing may be written."""
    log.warning("the lease is over")
    with suppress(OSError):
        mark_taken(folder)
    os._exit(1)


def _leave(folder: InstanceFolder, reports: Reports) -> int:
    """End without a verdict, as an instance that is lost: the yard has given it up, or is about to."""
    reports.note("Nothing was heard of the yard, so the instance was stopped before its lease was over.")
    log.warning("instance stopped, because its lease is about to end")
    mark_taken(folder)
    return 1


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

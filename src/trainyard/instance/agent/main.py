"""The agent's program: `python -m trainyard.instance.agent.main <instance folder>`.

It prepares, runs and reports one instance, and then exits. The yard may restart meanwhile. When the agent itself is
killed, the program dies with it, and the yard finds a spool without an outcome.
"""

import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from trainyard.foundation.clock import boottime
from trainyard.foundation.confined import remove_tree
from trainyard.foundation.disk import reserve_of
from trainyard.foundation.journal import write_journal
from trainyard.instance.agent.commands import CommandReader
from trainyard.instance.agent.context import InstanceContext
from trainyard.instance.agent.lifecycle import FAILED, STOPPED, Instance, InstanceOutcome
from trainyard.instance.agent.reports import Reports
from trainyard.instance.agent.results.failure import failure_before_program, to_cannot_run
from trainyard.instance.agent.watch.log_tail import LogTail
from trainyard.link.contract import LEASE, InstanceSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.lease import Lease, mark_ended_by_lease
from trainyard.link.mailbox import Mailbox
from trainyard.link.port_blocks import AGENT, BLOCK_PORTS, hold_block, ports_needed
from trainyard.link.spec_queries import is_first_on_machine
from trainyard.link.specs import read_spec
from trainyard.link.spool import SpoolWriter, last_frame

# One try per second, in which a full disk may get room for the last report.
_REPORT_TRIES = 60

log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Run one instance; return 0 when its outcome is in the spool, whatever the outcome is."""
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
        outcome = _run_instance(folder, reports)
        if outcome.reason == LEASE:
            return _exit_without_outcome(folder, reports)
        return 0 if _report_outcome(outcome, reports, folder=folder) else 1


def _run_instance(folder: InstanceFolder, reports: Reports) -> InstanceOutcome:
    try:
        spec = read_spec(folder.root)
        if spec.doorbell:
            reports.use_doorbell(Path(spec.doorbell), spec.job_id)
        commands = _command_reader(folder, spec)
        context = InstanceContext.open(
            folder, spec, reports=reports, commands=commands, yard_environment=dict(os.environ)
        )
        instance = Instance(context)
        log.info("instance started", extra={"job": spec.job_name, "instance": spec.instance})
        with _reserved_ports(spec):
            outcome = instance.run()
        return InstanceOutcome(STOPPED, LEASE) if commands.is_lease_ending else outcome
    except Exception as error:
        log.exception("the agent failed")
        failure = failure_before_program(to_cannot_run(error), instance=folder.root.name, tail=LogTail())
        return InstanceOutcome.of(failure)


def _command_reader(folder: InstanceFolder, spec: InstanceSpec) -> CommandReader:
    mailbox = Mailbox(folder.mailbox)
    if not spec.lease_s:
        return CommandReader(mailbox, monotonic=boottime)
    return CommandReader(
        mailbox,
        monotonic=boottime,
        lease=Lease.of(folder),
        grace_s=min(spec.grace_s, spec.lease_s / 2),
        give_up=lambda: _exit_at_once(folder),
    )


@contextmanager
def _reserved_ports(spec: InstanceSpec) -> Iterator[None]:
    """Hold the job's ports in the agent of its first instance on a machine, so that no other job there gets them.

    If a user of the machine has taken their names, the engine's own reservation must do.
    """
    with ExitStack() as holds:
        if spec.master_port and is_first_on_machine(spec):
            for first in range(spec.master_port, spec.master_port + ports_needed(len(spec.hosts)), BLOCK_PORTS):
                block = hold_block(first, AGENT)
                if block is not None:
                    holds.enter_context(block)
        yield


def _exit_at_once(folder: InstanceFolder) -> NoReturn:
    """Exit now, which ends the program too: the job may already run elsewhere, so nothing more may be written."""
    log.warning("the lease is over")
    with suppress(OSError):
        mark_ended_by_lease(folder)
    os._exit(1)


def _exit_without_outcome(folder: InstanceFolder, reports: Reports) -> int:
    """Exit like an instance that is lost: the yard has given it up or soon will."""
    reports.note("The yard could not be reached, so the instance was stopped before its lease ended.")
    log.warning("instance stopped, because its lease is about to end")
    mark_ended_by_lease(folder)
    return 1


def _report_outcome(outcome: InstanceOutcome, reports: Reports, *, folder: InstanceFolder) -> bool:
    """Report the outcome; False when it cannot be written, even after freeing space on a full disk."""
    if outcome.outcome == FAILED and reserve_of(folder.root).is_touched:
        # The outcome may still fit, but the yard needs room to record it.
        _free_disk(folder)
    for _ in range(_REPORT_TRIES):
        try:
            reports.report_end(outcome.outcome, outcome.reason, card=outcome.card, message=outcome.message)
        except OSError as error:
            log.error("the outcome cannot be written", extra={"why": error.strerror})
            _free_disk(folder)
            time.sleep(1)
        else:
            log.info("instance ended", extra={"outcome": outcome.outcome})
            return True
    return False


def _free_disk(folder: InstanceFolder) -> None:
    """Remove the folders that a job no longer needs after its program has ended."""
    for unneeded in (folder.scratch, folder.ml):
        with suppress(OSError):
            remove_tree(unneeded)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

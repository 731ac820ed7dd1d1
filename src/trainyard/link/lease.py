"""The lease of an instance: until when anything of it may run without hearing from the yard.

It is a time on the machine's boot clock, which no correction of the time of day moves. The runner of the instance
writes it, counted from the last answer that the yard received: an answer carries a stamp of this clock, and the yard
returns it. The agent and the watchdog of the instance read it. A lease that has expired is never renewed, because by
then the yard may have started the job elsewhere.
"""

import os
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainyard.foundation.clock import boottime
from trainyard.link.contract import InstanceSpec
from trainyard.link.folders import InstanceFolder

# A write may take this long to arrive.
_WRITE_MARGIN_S = 1.0
_MAX_BOOT_ID_BYTES = 64
# A renewal by less than this fraction of a lease is not worth a write. A lease may be shorter than the yard thinks.
_MIN_RENEWAL_FRACTION = 0.02
_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")


def stamp() -> str:
    """Return the current time in a form that only this machine understands, and only until its next boot."""
    return f"{boottime():.3f}@{_boot_id()}"


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease in a file: its modification time is when the lease expires, its content the boot id of the machine.

    Creating one of these touches nothing.
    """

    file: Path

    @classmethod
    def of(cls, folder: InstanceFolder) -> "Lease":
        return cls(folder.lease)

    @property
    def left_s(self) -> float:
        """How much time is left; 0 if there is no lease, or only one from before the last boot."""
        until, boot = self._read()
        return max(0.0, until - boottime()) if boot == _boot_id() else 0.0

    @property
    def is_of_this_boot(self) -> bool:
        return self._read()[1] == _boot_id()

    def renew(self, heard: str, lease_s: float) -> bool:
        """Extend the lease to `lease_s` after the stamp `heard`. Return whether the lease is valid now.

        A stamp of another machine or boot, or an older one than before, changes nothing.
        """
        until, boot = self._read()
        if boot and (boot != _boot_id() or until <= boottime()):
            return False
        renewed = max(until, _stamp_seconds(heard) + lease_s)
        if renewed <= boottime():
            return False
        if renewed - until >= lease_s * _MIN_RENEWAL_FRACTION:
            self._write(renewed)
        return True

    def _read(self) -> tuple[float, str]:
        try:
            with self.file.open("rb", buffering=0) as file:
                return os.fstat(file.fileno()).st_mtime, file.read(_MAX_BOOT_ID_BYTES).decode()
        except FileNotFoundError:
            return 0.0, ""

    def _write(self, until: float) -> None:
        """Write without a sync: a power cut ends the lease anyway. A renewal works on a full disk."""
        if self.file.exists():
            os.utime(self.file, (until, until))
            return
        descriptor, name = tempfile.mkstemp(prefix=".lease-", dir=self.file.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(_boot_id().encode())
            file.flush()
            os.utime(descriptor, (until, until))
        Path(name).replace(self.file)


def may_write(folder: InstanceFolder, spec: InstanceSpec) -> bool:
    """Whether an instance may still change what others read, including the time for a write to arrive."""
    return not spec.lease_s or Lease.of(folder).left_s > _WRITE_MARGIN_S


def mark_ended_by_lease(folder: InstanceFolder) -> None:
    """Record that the instance ends because its lease expired."""
    folder.ended_by_lease.touch()


def was_ended_by_lease(folder: InstanceFolder) -> bool:
    """Whether an instance that is not alive ended because its lease expired or its machine rebooted."""
    return folder.ended_by_lease.exists() or (folder.lease.exists() and not Lease.of(folder).is_of_this_boot)


def _stamp_seconds(heard: str) -> float:
    """Return the time in a stamp; minus infinity if it is not of this machine's current boot."""
    seconds, _, boot = heard.partition("@")
    return float(seconds) if boot == _boot_id() else float("-inf")


@cache
def _boot_id() -> str:
    return _BOOT_ID_FILE.read_text().strip()

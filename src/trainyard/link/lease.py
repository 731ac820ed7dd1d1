"""The lease of an instance: until when anything of it may run without another word of the yard.

It is a moment on the clock of the machine that counts since it was started, so that no correction of the time moves it.
The keeper of the instance writes it, counted from the last answer that the yard has had: an answer carries a stamp of
this clock, and the yard hands it back. The agent and the warden of the instance read it. A lease that has run out never
runs again, for by then the yard may have started the job elsewhere.
"""

import os
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainyard.foundation.clock import boottime
from trainyard.link.contract import InstanceSpec
from trainyard.link.folders import InstanceFolder

_ARRIVAL_S = 1.0
_BOOT_BYTES = 64
_STEP = 0.02  # of a lease: less is not worth a write, and a lease may always be shorter than the yard thinks
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def stamp() -> str:
    """This moment, in words that only this machine understands, and only until it is started anew."""
    return f"{boottime():.3f}@{_boot()}"


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease that a file holds: its time of change is the end, and its content the start of the machine meant.

    Making one of these touches nothing.
    """

    file: Path

    @classmethod
    def of(cls, folder: InstanceFolder) -> "Lease":
        return cls(folder.lease)

    @property
    def left_s(self) -> float:
        """How long it runs yet; nothing where there is none, or one of before the machine was started anew."""
        until, boot = self._read()
        return max(0.0, until - boottime()) if boot == _boot() else 0.0

    @property
    def is_of_this_boot(self) -> bool:
        return self._read()[1] == _boot()

    def renew(self, heard: str, lease_s: float) -> bool:
        """Let it run for `lease_s` after the stamp that was heard; whether it runs at all now.

        What is not a stamp of this machine, or an older one than was heard before, changes nothing.
        """
        until, boot = self._read()
        if boot and (boot != _boot() or until <= boottime()):
            return False
        renewed = max(until, _seconds(heard) + lease_s)
        if renewed <= boottime():
            return False
        if renewed - until >= lease_s * _STEP:
            self._write(renewed)
        return True

    def _read(self) -> tuple[float, str]:
        try:
            with self.file.open("rb", buffering=0) as file:
                return os.fstat(file.fileno()).st_mtime, file.read(_BOOT_BYTES).decode()
        except FileNotFoundError:
            return 0.0, ""

    def _write(self, until: float) -> None:
        """Not synced: what a power cut takes has run out by it. Renewing takes no room, which a full disk has not."""
        if self.file.exists():
            os.utime(self.file, (until, until))
            return
        descriptor, name = tempfile.mkstemp(prefix=".lease-", dir=self.file.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(_boot().encode())
            file.flush()
            os.utime(descriptor, (until, until))
        Path(name).replace(self.file)


def may_write(folder: InstanceFolder, spec: InstanceSpec) -> bool:
    """Whether an instance may still change what others read, with the time that it takes to arrive."""
    return not spec.lease_s or Lease.of(folder).left_s > _ARRIVAL_S


def mark_taken(folder: InstanceFolder) -> None:
    """Note that the instance ends because its lease does."""
    folder.taken.touch()


def was_taken(folder: InstanceFolder) -> bool:
    """Whether an instance that is not alive was ended by its lease, or with its machine."""
    return folder.taken.exists() or (folder.lease.exists() and not Lease.of(folder).is_of_this_boot)


def _seconds(heard: str) -> float:
    """The moment of a stamp; the earliest of all where it is none of this machine since its start."""
    seconds, _, boot = heard.partition("@")
    return float(seconds) if boot == _boot() else float("-inf")


@cache
def _boot() -> str:
    return _BOOT.read_text().strip()

"""Mounts FastFile channels of a remote S3 through a process that the agent starts and stops."""

import json
import logging
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from trainyard.foundation.home import process_start
from trainyard.foundation.interpreter import PACKAGE, boot_code
from trainyard.instance.agent.reports import Reports
from trainyard.instance.agent.results.failure import CannotRun, FailureKind
from trainyard.instance.sandbox.system_calls import unmount
from trainyard.link.contract import ChannelSpec, InstanceSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.ledger import Ledger, LedgerKind

_BOOT = boot_code("trainyard.instance.agent.data.remote_files.server")
_POLL_S = 0.05
_EXIT_TIMEOUT_S = 5.0
_DEVICE = "/dev/fuse"

log = logging.getLogger(__name__)


def is_streamed(spec: InstanceSpec, channel: ChannelSpec) -> bool:
    """Whether a channel is read from a remote S3 while the program runs, as read-only files."""
    is_read_only = channel.mode == "FastFile" or not channel.is_writable
    return bool(spec.objects.url) and is_read_only and channel.mode != "Pipe" and not channel.folder


class RemoteMounts:
    """The mounts of one instance. Everything outside the process is in the ledger before it is created.

    `start` is called when the program runs; from then on a thread records the errors of its readers.
    """

    def __init__(self, folder: InstanceFolder, spec: InstanceSpec, *, reports: Reports) -> None:
        self.failure: CannotRun | None = None
        self._folder = folder
        self._spec = spec
        self._reports = reports
        self._process: subprocess.Popen[bytes] | None = None
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._partial_line = b""
        self._mount_points: list[Path] = []
        self._is_closing = False

    def mount(self, channels: Sequence[ChannelSpec], *, check: Callable[[], None]) -> bool:
        """Create the folders of channels and mount them; False, with a note, when this machine does not permit it.

        Raises CannotRun when their objects cannot be files. Calls `check` now and then, which may raise.
        """
        if not channels:
            return True
        why = _obstacle() or self._mount(channels, check)
        if why:
            names = ", ".join(channel.name for channel in channels)
            self._reports.note(
                f"FUSE cannot be used here ({why}), so all files are downloaded before the start: {names}."
            )
        return not why

    def start(self) -> None:
        if self._process is not None:
            self._listener.start()

    def close(self) -> None:
        """Unmount the channels and stop the process, whatever it is doing."""
        process = self._process
        if process is None:
            return
        self._is_closing = True
        for mount_point in self._mount_points:
            with suppress(OSError):
                unmount(str(mount_point))
        assert process.stdin is not None, "it is a pipe"
        process.stdin.close()
        try:
            process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._listener.ident is not None:
            self._listener.join()
        assert process.stdout is not None, "it is a pipe"
        process.stdout.close()
        self._process = None

    def _mount(self, channels: Sequence[ChannelSpec], check: Callable[[], None]) -> str:
        """Mount the channels; return why that is refused, empty when all are mounted."""
        ledger = Ledger(self._folder.ledger)
        for channel in channels:
            mount_point = self._folder.channels / channel.name
            mount_point.mkdir(parents=True, exist_ok=True)
            ledger.add(LedgerKind.MOUNT, path=str(mount_point))
            self._mount_points.append(mount_point)
        self._process = self._spawn(channels)
        ledger.add(LedgerKind.PROCESS, pid=self._process.pid, started=process_start(self._process.pid) or "")
        try:
            kind, text = self._first_message(check)
        except BaseException:
            self.close()
            raise
        if kind == "ready":
            return ""
        self.close()
        if kind == "cannot":
            raise CannotRun(text, FailureKind.BAD_INPUT)
        return text

    def _spawn(self, channels: Sequence[ChannelSpec]) -> "subprocess.Popen[bytes]":
        names = [channel.name for channel in channels]
        return subprocess.Popen(
            [sys.executable, "-I", "-c", _BOOT, PACKAGE, str(self._folder.root), *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
        )

    def _first_message(self, check: Callable[[], None]) -> tuple[str, str]:
        while True:
            check()
            messages = self._read_messages(_POLL_S)
            if messages is None:
                return "refused", "the process that serves it ended"
            if messages:
                return messages[0]

    def _listen(self) -> None:
        while (messages := self._read_messages(None)) is not None:
            for _, text in messages:
                self._record_failure(CannotRun(text, FailureKind.BAD_INPUT))
        if not self._is_closing:
            self._record_failure(CannotRun("The process that serves FastFile channels has died.", FailureKind.INTERNAL))

    def _record_failure(self, failure: CannotRun) -> None:
        self.failure = self.failure or failure
        self._reports.note(failure.message)

    def _read_messages(self, timeout_s: float | None) -> list[tuple[str, str]] | None:
        """Read the messages of the process; None at its end."""
        assert self._process is not None, "it was started"
        assert self._process.stdout is not None, "it is a pipe"
        descriptor = self._process.stdout.fileno()
        if not select.select([descriptor], [], [], timeout_s)[0]:
            return []
        data = os.read(descriptor, 1 << 16)
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        messages = [json.loads(line) for line in lines]
        return [(message["kind"], message["text"]) for message in messages] if data else None


def _obstacle() -> str:
    """Why nothing can be mounted; empty when it is worth trying."""
    if os.geteuid() != 0:
        return "only a yard that runs as root may mount"
    return "" if os.access(_DEVICE, os.R_OK | os.W_OK) else f"this machine has no {_DEVICE}"

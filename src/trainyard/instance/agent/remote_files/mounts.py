"""FastFile channels of a remote S3 as the agent has them: mounted by a process that it starts and ends."""

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
from trainyard.instance.agent.failure import CannotRun, FailureKind
from trainyard.instance.agent.reports import Reports
from trainyard.instance.sandbox.system_calls import unmount
from trainyard.link.contract import ChannelSpec, InstanceSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.ledger import Ledger, LedgerKind

_PACKAGES = Path(__file__).resolve().parents[4]
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from trainyard.instance.agent.remote_files.serving import main; main(sys.argv[2:])"
)
_POLL_S = 0.05
_END_S = 5.0
_DEVICE = "/dev/fuse"

log = logging.getLogger(__name__)


def is_streamed(spec: InstanceSpec, channel: ChannelSpec) -> bool:
    """Whether a channel shall be read from a remote S3 while the program runs, as files that it cannot change."""
    is_fixed = channel.mode == "FastFile" or not channel.is_writable
    return bool(spec.objects.url) and is_fixed and channel.mode != "Pipe" and not channel.folder


class RemoteFiles:
    """The mounts of one instance; everything on disk that they need is in the ledger before it is made.

    `start` is called when the program runs, and has a thread hear of what its readers meet.
    """

    def __init__(self, folder: InstanceFolder, spec: InstanceSpec, *, reports: Reports) -> None:
        self.failure: CannotRun | None = None
        self._folder = folder
        self._spec = spec
        self._reports = reports
        self._process: subprocess.Popen[bytes] | None = None
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._rest = b""
        self._places: list[Path] = []
        self._is_closing = False

    def mount(self, channels: Sequence[ChannelSpec], *, check: Callable[[], None]) -> bool:
        """Mount channels on their folders, which are made; False, and a note, where this machine does not let us.

        CannotRun when their objects cannot be files. `check` is called now and then and may raise to end it.
        """
        if not channels:
            return True
        why = _obstacle() or self._mount(channels, check)
        if why:
            names = ", ".join(channel.name for channel in channels)
            self._reports.note(f"FUSE cannot be used here ({why}), so all files are brought before the start: {names}.")
        return not why

    def start(self) -> None:
        if self._process is not None:
            self._listener.start()

    def close(self) -> None:
        """Take the mounts away and end the process, whatever it is doing."""
        process = self._process
        if process is None:
            return
        self._is_closing = True
        for place in self._places:
            with suppress(OSError):
                unmount(str(place))
        assert process.stdin is not None, "it is a pipe"
        process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._listener.ident is not None:
            self._listener.join()
        assert process.stdout is not None, "it is a pipe"
        process.stdout.close()
        self._process = None

    def _mount(self, channels: Sequence[ChannelSpec], check: Callable[[], None]) -> str:
        """Why it is refused; nothing when all is mounted."""
        ledger = Ledger(self._folder.ledger)
        for channel in channels:
            place = self._folder.channels / channel.name
            place.mkdir(parents=True, exist_ok=True)
            ledger.add(LedgerKind.MOUNT, path=str(place))
            self._places.append(place)
        self._process = self._spawn(channels)
        ledger.add(LedgerKind.PROCESS, pid=self._process.pid, started=process_start(self._process.pid) or "")
        try:
            kind, text = self._first_word(check)
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
            [sys.executable, "-I", "-c", _BOOT, str(_PACKAGES), str(self._folder.root), *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
        )

    def _first_word(self, check: Callable[[], None]) -> tuple[str, str]:
        while True:
            check()
            words = self._heard(_POLL_S)
            if words is None:
                return "refused", "the process that shall serve it ended"
            if words:
                return words[0]

    def _listen(self) -> None:
        while (words := self._heard(None)) is not None:
            for _, text in words:
                self._take_note(CannotRun(text, FailureKind.BAD_INPUT))
        if not self._is_closing:
            self._take_note(CannotRun("The process that serves FastFile channels was ended.", FailureKind.INTERNAL))

    def _take_note(self, trouble: CannotRun) -> None:
        self.failure = self.failure or trouble
        self._reports.note(trouble.message)

    def _heard(self, timeout_s: float | None) -> list[tuple[str, str]] | None:
        """What the process has said; None at its end."""
        assert self._process is not None, "it was started"
        assert self._process.stdout is not None, "it is a pipe"
        descriptor = self._process.stdout.fileno()
        if not select.select([descriptor], [], [], timeout_s)[0]:
            return []
        data = os.read(descriptor, 1 << 16)
        *lines, self._rest = (self._rest + data).split(b"\n")
        said = [json.loads(line) for line in lines]
        return [(word["kind"], word["text"]) for word in said] if data else None


def _obstacle() -> str:
    """Why nothing can be mounted; nothing when it is worth trying."""
    if os.geteuid() != 0:
        return "only a yard that root runs may mount"
    return "" if os.access(_DEVICE, os.R_OK | os.W_OK) else f"this machine has no {_DEVICE}"

"""Pipe channels: one FIFO per epoch, which the agent feeds while the program reads it.

They are `/opt/ml/input/data/<channel>_<epoch>`, counted from 0. When the program opens one, the next exists already. A
reader that closes early ends its epoch; a channel that is never opened costs a sleeping thread. When a feeder fails,
its FIFO stays open until the program has been killed: the program must not mistake a part for the whole.
"""

import fcntl
import itertools
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread

from trainyard.foundation.confined import ConfinedFolder
from trainyard.instance.agent.data.channel_paths import PIPE
from trainyard.instance.agent.data.pipe_feed import FeedClosing, FifoWriter, PipeFeed
from trainyard.instance.agent.layout import ProgramUser
from trainyard.instance.agent.results.failure import CannotRun, FailureKind, to_cannot_run
from trainyard.link.contract import ChannelSpec, InstanceSpec
from trainyard.link.folders import InstanceFolder

_PIPE_BYTES = 1 << 20

log = logging.getLogger(__name__)


class PipeChannels:
    """All Pipe channels of one instance. Call `start` when the program runs, and `close` when it has ended.

    No thread runs before `start`, so that the program can be forked. After `close`, `unopened` names the channels that
    the program never opened.
    """

    def __init__(self, folder: InstanceFolder, spec: InstanceSpec, owner: ProgramUser) -> None:
        self._folder = folder
        self._spec = spec
        self._owner = owner
        self._channels: list[_PipeChannel] = []
        self.unopened: tuple[str, ...] = ()

    @property
    def failure(self) -> CannotRun | None:
        """Why the program cannot get all of its data; None as long as it can."""
        return next((each.failure for each in self._channels if each.failure is not None), None)

    def create_fifos(self) -> None:
        """Create the FIFOs for the start of the program; CannotRun when another channel has the name of one."""
        for channel in self._spec.channels:
            if channel.mode == PIPE:
                _check_names(channel, self._spec.channels)
                fifos = _Fifos(self._folder, channel.name, self._owner)
                self._channels.append(_PipeChannel(fifos, PipeFeed(self._spec, channel, scratch=self._folder.scratch)))
                fifos.make(0)
                # The next must exist when the first is opened.
                fifos.make(1)

    def start(self) -> None:
        for channel in self._channels:
            channel.start()

    def close(self) -> None:
        """Stop all feeders, whatever they are doing."""
        for channel in self._channels:
            channel.close()
        self.unopened += tuple(each.fifos.channel for each in self._channels if not each.was_opened)
        self._channels = [each for each in self._channels if each.failure is not None]


class _Fifos:
    """The FIFOs of one channel. The agent opens each by a second name that the program cannot reach.

    So nothing that the program does in its own folders can lead the agent to another file.
    """

    def __init__(self, folder: InstanceFolder, channel: str, owner: ProgramUser) -> None:
        self._private = folder.scratch / "pipes"
        self._private.mkdir(exist_ok=True)
        self._visible = ConfinedFolder.open(folder.ml, "input/data")
        self.channel = channel
        self._owner = owner

    def path(self, epoch: int) -> Path:
        return self._private / self._name(epoch)

    def make(self, epoch: int) -> None:
        os.mkfifo(self.path(epoch), 0o600)
        self._owner.give_path(self.path(epoch))
        # If the program has removed its folder or put a file of its own there, it gets no more epochs.
        with suppress(FileNotFoundError, FileExistsError):
            self._visible.link_file(self.path(epoch), self._name(epoch))

    def remove(self, epoch: int) -> None:
        """Remove a FIFO: a program that opened it from now on would wait forever."""
        with suppress(OSError):
            self._visible.unlink(self._name(epoch))
        self.path(epoch).unlink()

    def close(self) -> None:
        self._visible.close()

    def _name(self, epoch: int) -> str:
        return f"{self.channel}_{epoch}"


class _PipeChannel:
    """One channel and the thread that feeds it."""

    def __init__(self, fifos: _Fifos, feed: PipeFeed) -> None:
        self.failure: CannotRun | None = None
        self.was_opened = False
        self.fifos = fifos
        self._feed = feed
        self._lock = Lock()
        self._is_closing = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoch = 0
        self._writer = -1
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with self._lock:
            self._is_closing = True
        os.eventfd_write(self._wake, 1)
        reader = self._open_reader()
        if self._thread.ident is not None:
            self._thread.join()
        for descriptor in (reader, self._writer, self._wake):
            if descriptor >= 0:
                os.close(descriptor)
        self.fifos.close()

    def _open_reader(self) -> int:
        """Open the FIFO for reading, which wakes the thread if it waits for a reader; -1 when the epoch is over."""
        try:
            return os.open(self.fifos.path(self._epoch), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return -1

    def _run(self) -> None:
        try:
            for epoch in itertools.count():
                self._feed_epoch(epoch)
                self.fifos.make(epoch + 2)
        except FeedClosing:
            return
        except Exception as error:
            self.failure = to_cannot_run(error)
            log.warning("a Pipe channel failed", extra={"why": self.failure.message}, exc_info=error)

    def _feed_epoch(self, epoch: int) -> None:
        """Feed one epoch as soon as the program opens its FIFO."""
        with self._lock:
            if self._is_closing:
                raise FeedClosing
            self._epoch = epoch
        self._writer = os.open(self.fifos.path(epoch), os.O_WRONLY | os.O_CLOEXEC)
        if self._is_closing:
            raise FeedClosing
        self.was_opened = True
        os.set_blocking(self._writer, False)
        # Fails when a user has used up the kernel's limit for all pipes together.
        with suppress(OSError):
            fcntl.fcntl(self._writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        with suppress(BrokenPipeError):
            self._feed.send(epoch, FifoWriter(self._writer, self._wake))
        self.fifos.remove(epoch)
        os.close(self._writer)
        self._writer = -1


def _check_names(channel: ChannelSpec, channels: Sequence[ChannelSpec]) -> None:
    for other in channels:
        name, _, epoch = other.name.rpartition("_")
        if name == channel.name and epoch.isdecimal():
            raise CannotRun(
                f"The channel {other.name} has the name of an epoch of the Pipe channel {name}; rename one of them.",
                FailureKind.USER_ERROR,
            )

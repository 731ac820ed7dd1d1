"""Pipe channels: FIFOs that the agent feeds while the program reads them, one for each epoch.

`/opt/ml/input/data/<channel>_<epoch>`, counted from 0. When the program opens one, the next is there already. A reader
that closes early ends its epoch; a channel that nobody opens costs a thread that sleeps. Should a feeder fail, the FIFO
stays open until the program has been ended: it must not take what it got for the whole.
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
from trainyard.instance.agent.failure import CannotRun, FailureKind, why_it_cannot_run
from trainyard.instance.agent.feeding import Closing, Feed, Sink
from trainyard.instance.agent.layout import Owner
from trainyard.instance.agent.placing import PIPE
from trainyard.link.contract import ChannelSpec, InstanceSpec
from trainyard.link.folders import InstanceFolder

_PIPE_BYTES = 1 << 20

log = logging.getLogger(__name__)


class Pipes:
    """All Pipe channels of one instance. They are laid, then started when the program runs, and closed when it ended.

    No thread runs before `start`, so that the program can be forked.
    """

    def __init__(self, folder: InstanceFolder, spec: InstanceSpec, owner: Owner) -> None:
        self._folder = folder
        self._spec = spec
        self._owner = owner
        self._channels: list[_Channel] = []
        self.unopened: tuple[str, ...] = ()  # the channels that nobody had opened when they were closed

    @property
    def failure(self) -> CannotRun | None:
        """Why the program cannot get all of its data; None as long as it can."""
        return next((each.failure for each in self._channels if each.failure is not None), None)

    def lay(self) -> None:
        """Make the FIFOs that the program finds when it starts; CannotRun when another channel has the name of one."""
        for channel in self._spec.channels:
            if channel.mode == PIPE:
                _check_names(channel, self._spec.channels)
                fifos = _Fifos(self._folder, channel.name, self._owner)
                self._channels.append(_Channel(fifos, Feed(self._spec, channel, scratch=self._folder.scratch)))
                fifos.make(0)
                fifos.make(1)  # it shall be there when the first is opened

    def start(self) -> None:
        for channel in self._channels:
            channel.start()

    def close(self) -> None:
        """End all feeders, wherever they are."""
        for channel in self._channels:
            channel.close()
        self.unopened += tuple(each.fifos.channel for each in self._channels if not each.was_opened)
        self._channels = [each for each in self._channels if each.failure is not None]


class _Fifos:
    """The FIFOs of one channel. Each has a second name that the program cannot reach, by which it is opened here.

    So nothing that the program does in its folders, which are its own, can lead the agent to another file.
    """

    def __init__(self, folder: InstanceFolder, channel: str, owner: Owner) -> None:
        self._own = folder.scratch / "pipes"
        self._own.mkdir(exist_ok=True)
        self._shown = ConfinedFolder.open(folder.ml, "input/data")
        self.channel = channel
        self._owner = owner

    def path(self, epoch: int) -> Path:
        return self._own / self._name(epoch)

    def make(self, epoch: int) -> None:
        os.mkfifo(self.path(epoch), 0o600)
        self._owner.take(self.path(epoch))
        # The program may have removed its folder, or put something of its own there, and then gets no more epochs.
        with suppress(FileNotFoundError, FileExistsError):
            self._shown.link_file(self.path(epoch), self._name(epoch))

    def remove(self, epoch: int) -> None:
        """Whoever opened it from now on would wait for ever."""
        with suppress(OSError):
            self._shown.unlink(self._name(epoch))
        self.path(epoch).unlink()

    def close(self) -> None:
        self._shown.close()

    def _name(self, epoch: int) -> str:
        return f"{self.channel}_{epoch}"


class _Channel:
    """One channel and the thread that feeds it."""

    def __init__(self, fifos: _Fifos, feed: Feed) -> None:
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
        reader = self._become_reader()
        if self._thread.ident is not None:
            self._thread.join()
        for descriptor in (reader, self._writer, self._wake):
            if descriptor >= 0:
                os.close(descriptor)
        self.fifos.close()

    def _become_reader(self) -> int:
        """Wake the thread if it waits for one; -1 when that epoch is over."""
        try:
            return os.open(self.fifos.path(self._epoch), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return -1

    def _run(self) -> None:
        try:
            for epoch in itertools.count():
                self._serve(epoch)
                self.fifos.make(epoch + 2)
        except Closing:
            return
        except Exception as error:
            self.failure = why_it_cannot_run(error)
            log.warning("a Pipe channel failed", extra={"why": self.failure.message}, exc_info=error)

    def _serve(self, epoch: int) -> None:
        """One epoch, as soon as somebody reads."""
        with self._lock:
            if self._is_closing:
                raise Closing
            self._epoch = epoch
        self._writer = os.open(self.fifos.path(epoch), os.O_WRONLY | os.O_CLOEXEC)
        if self._is_closing:
            raise Closing
        self.was_opened = True
        os.set_blocking(self._writer, False)
        with suppress(OSError):  # a user may have used up what all pipes together may hold
            fcntl.fcntl(self._writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        with suppress(BrokenPipeError):
            self._feed.send(epoch, Sink(self._writer, self._wake))
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

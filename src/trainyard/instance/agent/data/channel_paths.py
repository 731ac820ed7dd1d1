"""How the programs of an instance see its channels, under input/data of the ml folder.

A File channel is shown copy-on-write, a FastFile channel read-only, a folder of this machine as it is. When a sandbox
cannot do that, the files are put into the ml folder itself: as hard links if the program runs as another user than the
owner of the store, who alone could change the shared files; otherwise as copies. Files that the program may only read
then belong to the yard, or have no write permission if both are the same user.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainyard.foundation.confined import ConfinedFolder
from trainyard.instance.agent.data.channels import copy_file, link_file, staged_folder
from trainyard.instance.agent.layout import ProgramUser
from trainyard.instance.sandbox.contract import ML, Bind, CopyOnWrite
from trainyard.link.contract import ChannelSpec
from trainyard.link.folders import InstanceFolder

PIPE, FAST_FILE = "Pipe", "FastFile"

_DATA = "input/data"
_READ_ONLY_FILE, _READ_ONLY_FOLDER = 0o444, 0o555


def needs_files(channel: ChannelSpec) -> bool:
    """Whether the objects of a channel must be staged as files."""
    return channel.mode != PIPE and not channel.folder


class ChannelMounts:
    """The mounts of the channels in a sandbox, and the replacement when it cannot mount them."""

    def __init__(self, folder: InstanceFolder, channels: Sequence[ChannelSpec], *, owner: ProgramUser) -> None:
        self._folder = folder
        # A channel in the folder of another is part of what that one shows.
        self._channels = [each for each in channels if not any(_lies_in(each, other) for other in channels)]
        self._owner = owner
        # Channels that were put into the ml folder.
        self._placed: set[str] = set()
        self._not_enforced: list[str] = []

    @property
    def not_enforced(self) -> Sequence[str]:
        """Sentences about what a program could do to its channels although it must not."""
        return self._not_enforced

    @property
    def copy_on_write(self) -> Sequence[CopyOnWrite]:
        changes = self._folder.scratch / "channels"
        return [
            CopyOnWrite(self._staged_folder(each), _target(each), staged_folder(each, changes))
            for each in self._mounted_channels()
            if needs_files(each) and not _is_read_only(each)
        ]

    @property
    def read_only(self) -> Sequence[Bind]:
        read_only = [
            Bind(self._staged_folder(each), _target(each))
            for each in self._mounted_channels()
            if needs_files(each) and _is_read_only(each)
        ]
        return [*read_only, *(_bind(each) for each in self._mounted_channels() if each.folder and not each.is_writable)]

    @property
    def writable(self) -> Sequence[Bind]:
        return [_bind(each) for each in self._mounted_channels() if each.folder and each.is_writable]

    def place_files(self) -> None:
        """Put copy-on-write channels into the ml folder, for sandboxes that do not support them."""
        self._place([each for each in self._mounted_channels() if needs_files(each) and not _is_read_only(each)])

    def place_all(self) -> None:
        """Put all channels into the ml folder, for programs that see the host's file system."""
        self._place([each for each in self._mounted_channels() if each.mode != PIPE])

    def _mounted_channels(self) -> Iterator[ChannelSpec]:
        return (each for each in self._channels if each.name not in self._placed)

    def _staged_folder(self, channel: ChannelSpec) -> Path:
        return staged_folder(channel, self._folder.channels)

    def _place(self, channels: Sequence[ChannelSpec]) -> None:
        for channel in channels:
            parent, _, name = _target(channel).removeprefix(f"{ML}/").rpartition("/")
            with ConfinedFolder.open(self._folder.ml) as ml, ml.make_folder(parent, owner=self._owner.uid) as folder:
                if channel.folder:
                    folder.make_link(name, f"{channel.folder}/{channel.directory}".rstrip("/"))
                else:
                    self._place_tree(self._staged_folder(channel), folder, name, is_read_only=_is_read_only(channel))
            self._placed.add(channel.name)
            self._not_enforced += self._gaps(channel)

    def _place_tree(self, source: Path, parent: ConfinedFolder, name: str, *, is_read_only: bool) -> None:
        with parent.make_folder(name) as place:
            # The folder may exist already, made by a sandbox that could not start.
            if not is_read_only and self._owner.uid is not None:
                os.fchown(place.fileno(), self._owner.uid, self._owner.uid)
            for entry in os.scandir(source):
                if entry.is_dir(follow_symlinks=False):
                    self._place_tree(source / entry.name, place, entry.name, is_read_only=is_read_only)
                else:
                    self._place_file(source / entry.name, place, entry.name, is_read_only=is_read_only)
        if is_read_only:
            parent.set_mode(name, _READ_ONLY_FOLDER)

    def _place_file(self, source: Path, place: ConfinedFolder, name: str, *, is_read_only: bool) -> None:
        if self._owner.owns_no_objects and link_file(source, name, folder=place.fileno()):
            return
        mode, owner = (_READ_ONLY_FILE, None) if is_read_only else (0o644, self._owner.uid)
        descriptor = place.create_file(name, owner=owner, mode=mode)
        with source.open("rb", buffering=0) as file, os.fdopen(descriptor, "wb", buffering=0) as copy:
            copy_file(file.fileno(), copy)

    def _gaps(self, channel: ChannelSpec) -> Iterator[str]:
        """Yield what is not enforced for a channel in the ml folder."""
        if not _is_read_only(channel):
            return
        if channel.folder:
            yield (
                f"The folder of channel {channel.name} is not read-only: without namespaces the program can change "
                "whatever its user may change."
            )
        elif not self._owner.owns_no_objects:
            yield (
                f"Channel {channel.name} is read-only only by the modes of its files, which are copies: without "
                "namespaces the program could change those modes."
            )


def _is_read_only(channel: ChannelSpec) -> bool:
    """Whether the program may only read the channel."""
    return channel.mode == FAST_FILE or not channel.is_writable


def _target(channel: ChannelSpec) -> str:
    return channel.path or f"{ML}/{_DATA}/{channel.name}"


def _lies_in(channel: ChannelSpec, other: ChannelSpec) -> bool:
    return bool(other.path) and channel.path.startswith(f"{other.path}/")


def _bind(channel: ChannelSpec) -> Bind:
    return Bind(Path(channel.folder), _target(channel), below=channel.directory)

"""Where the programs of an instance find its channels, under input/data of the ml folder.

A File channel is shown copy-on-write, a FastFile channel read-only, a folder of this machine as it is. Where a sandbox
cannot do that, the files are put into the ml folder itself: as hard links where the program runs as another user than
the one who owns the store, which alone could change what they share with it; otherwise as copies. What the program may
only read then belongs to the yard, or where both are one user has no right to be written.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainyard.foundation.confined import ConfinedFolder
from trainyard.instance.agent.channels import copy_file, link_file
from trainyard.instance.agent.layout import Owner
from trainyard.instance.sandbox.contract import ML, Bind, CopyOnWrite
from trainyard.link.contract import ChannelSpec
from trainyard.link.folders import InstanceFolder

PIPE, FAST_FILE = "Pipe", "FastFile"

_DATA = "input/data"
_FIXED_FILE, _FIXED_FOLDER = 0o444, 0o555


def needs_files(channel: ChannelSpec) -> bool:
    """Whether the objects of a channel have to be brought as files."""
    return channel.mode != PIPE and not channel.folder


class ChannelPlaces:
    """What a sandbox has to show of the channels, and what to do when it cannot."""

    def __init__(self, folder: InstanceFolder, channels: Sequence[ChannelSpec], *, owner: Owner) -> None:
        self._folder = folder
        self._channels = channels
        self._owner = owner
        self._placed: set[str] = set()  # channels that lie in the ml folder
        self._not_enforced: list[str] = []

    @property
    def not_enforced(self) -> Sequence[str]:
        """What a program could do to its channels although it must not, in sentences."""
        return self._not_enforced

    @property
    def copy_on_write(self) -> Sequence[CopyOnWrite]:
        return [
            CopyOnWrite(self._brought(each), _target(each), self._folder.scratch / "channels" / each.name)
            for each in self._shown()
            if needs_files(each) and not _is_fixed(each)
        ]

    @property
    def read_only(self) -> Sequence[Bind]:
        fixed = [
            Bind(self._brought(each), _target(each)) for each in self._shown() if needs_files(each) and _is_fixed(each)
        ]
        return [*fixed, *(_bind(each) for each in self._shown() if each.folder and not each.is_writable)]

    @property
    def writable(self) -> Sequence[Bind]:
        return [_bind(each) for each in self._shown() if each.folder and each.is_writable]

    def place_files(self) -> None:
        """Put into the ml folder what would have been shown copy-on-write, for sandboxes that cannot."""
        self._place([each for each in self._shown() if needs_files(each) and not _is_fixed(each)])

    def place_all(self) -> None:
        """Put everything into the ml folder, for programs that see the folders of the host."""
        self._place([each for each in self._shown() if each.mode != PIPE])

    def _shown(self) -> Iterator[ChannelSpec]:
        return (each for each in self._channels if each.name not in self._placed)

    def _brought(self, channel: ChannelSpec) -> Path:
        return self._folder.channels / channel.name

    def _place(self, channels: Sequence[ChannelSpec]) -> None:
        with ConfinedFolder.open(self._folder.ml, _DATA) as data:
            for channel in channels:
                if channel.folder:
                    data.make_link(channel.name, f"{channel.folder}/{channel.directory}".rstrip("/"))
                else:
                    self._place_tree(self._brought(channel), data, channel.name, is_fixed=_is_fixed(channel))
                self._placed.add(channel.name)
                self._not_enforced += self._gaps(channel)

    def _place_tree(self, source: Path, parent: ConfinedFolder, name: str, *, is_fixed: bool) -> None:
        with parent.make_folder(name) as place:
            if not is_fixed and self._owner.uid is not None:  # also one that a sandbox has made which could not start
                os.fchown(place.fileno(), self._owner.uid, self._owner.uid)
            for entry in os.scandir(source):
                if entry.is_dir(follow_symlinks=False):
                    self._place_tree(source / entry.name, place, entry.name, is_fixed=is_fixed)
                else:
                    self._place_file(source / entry.name, place, entry.name, is_fixed=is_fixed)
        if is_fixed:
            parent.set_mode(name, _FIXED_FOLDER)

    def _place_file(self, source: Path, place: ConfinedFolder, name: str, *, is_fixed: bool) -> None:
        if self._owner.is_another and link_file(source, name, folder=place.fileno()):
            return
        mode, owner = (_FIXED_FILE, None) if is_fixed else (0o644, self._owner.uid)
        descriptor = place.create_file(name, owner=owner, mode=mode)
        with source.open("rb", buffering=0) as file, os.fdopen(descriptor, "wb", buffering=0) as copy:
            copy_file(file.fileno(), copy)

    def _gaps(self, channel: ChannelSpec) -> Iterator[str]:
        """What is not as it should be of a channel that lies in the ml folder."""
        if not _is_fixed(channel):
            return
        if channel.folder:
            yield (
                f"The folder of channel {channel.name} is not read-only: without namespaces the program can change in "
                "it what its user may."
            )
        elif not self._owner.is_another:
            yield (
                f"Channel {channel.name} is read-only by the modes of its files alone, which are copies: without "
                "namespaces the program could change those modes."
            )


def _is_fixed(channel: ChannelSpec) -> bool:
    """Whether the program may only read the files."""
    return channel.mode == FAST_FILE or not channel.is_writable


def _target(channel: ChannelSpec) -> str:
    return f"{ML}/{_DATA}/{channel.name}"


def _bind(channel: ChannelSpec) -> Bind:
    return Bind(Path(channel.folder), _target(channel), below=channel.directory)

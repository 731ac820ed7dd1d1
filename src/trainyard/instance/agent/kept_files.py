"""Files of a remote S3 that stay for later jobs, where they cannot be read while the program runs.

Each is of one version of an object, by which it is named, so a file of an older one is never taken. They are shared
with the folders of channels by hard links: what nobody has used for longest is removed here, and stays in those.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

from trainyard.foundation.files import PRIVATE_FOLDER
from trainyard.instance.agent.channels import file_path, link_file
from trainyard.link.contract import ChannelSpec, InstanceSpec

_WHOLE = "files"  # beside the blocks of those that are read piece by piece


class KeptFiles:
    """Those of the channels that are file systems, below `root`; of all other channels it keeps nothing."""

    def __init__(self, spec: InstanceSpec, root: Path) -> None:
        self._spec = spec
        self._root = root

    def link(self, channel: ChannelSpec) -> ChannelSpec:
        """Put into the folder of a channel what is there of it, and return the channel with what is missing."""
        if not self._is_kept(channel):
            return channel
        missing: list[int] = []
        for position, key in enumerate(channel.keys):
            path = file_path(key, channel.prefix)
            if (
                path is None
                or path.endswith("/")
                or not self._take(channel, position, self._root / channel.name / path)
            ):
                missing.append(position)
        return replace(
            channel,
            keys=[channel.keys[position] for position in missing],
            etags=[channel.etags[position] for position in missing],
            sizes=[channel.sizes[position] for position in missing],
        )

    def keep(self, channels: Sequence[ChannelSpec]) -> None:
        """Keep what was brought, and no more than may be kept."""
        for channel in filter(self._is_kept, channels):
            folder = Path(channel.cache, _WHOLE)
            folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            for position, key in enumerate(channel.keys):
                path = file_path(key, channel.prefix)
                if path and not path.endswith("/"):
                    self._keep_file(self._root / channel.name / path, self._kept(channel, position))
            _keep_bound(folder, self._spec.objects.cache_bytes)

    def _is_kept(self, channel: ChannelSpec) -> bool:
        return bool(self._spec.objects.url and channel.cache)

    def _take(self, channel: ChannelSpec, position: int, place: Path) -> bool:
        kept = self._kept(channel, position)
        try:
            os.utime(kept)
        except FileNotFoundError:
            return False
        place.parent.mkdir(parents=True, exist_ok=True)
        return link_file(kept, place)

    def _keep_file(self, file: Path, kept: Path) -> None:
        if kept.exists():
            return
        # Durable before it has its name: after a power cut nobody could tell that it is not whole.
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
        with suppress(FileExistsError):  # another job was faster
            link_file(file, kept)

    def _kept(self, channel: ChannelSpec, position: int) -> Path:
        object_ = (self._spec.account, channel.bucket, channel.keys[position])
        version = "\0".join((*object_, channel.etags[position], str(channel.sizes[position])))
        return Path(channel.cache, _WHOLE, blake2b(version.encode(), digest_size=16).hexdigest())


def _keep_bound(folder: Path, limit_bytes: int) -> None:
    """Remove files that nobody has used for longest."""
    found = []
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):
            told = entry.stat(follow_symlinks=False)
            found.append((told.st_mtime, told.st_size, entry.path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= limit_bytes:
            return
        Path(path).unlink(missing_ok=True)
        total -= size

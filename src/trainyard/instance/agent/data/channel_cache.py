"""Caches downloaded files of a remote S3 for later jobs, where they cannot be streamed while the program runs.

Each file is one version of an object and named after it, so an outdated file is never used. The cache shares its files
with the folders of channels by hard links: the least recently used are removed here and stay there.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

from trainyard.foundation.files import PRIVATE_FOLDER
from trainyard.instance.agent.data.channels import channel_file_path, link_file
from trainyard.link.contract import ChannelSpec, InstanceSpec

# Beside the cached blocks of streamed files.
_FOLDER = "files"


class ChannelFileCache:
    """The cached files of the channels below `root`. Channels without a cache folder are left alone."""

    def __init__(self, spec: InstanceSpec, root: Path) -> None:
        self._spec = spec
        self._root = root

    def link_cached_files(self, channel: ChannelSpec) -> ChannelSpec:
        """Link the cached files of a channel into its folder. Return the channel with only the missing objects."""
        if not self._is_cached(channel):
            return channel
        missing: list[int] = []
        for position, key in enumerate(channel.keys):
            path = channel_file_path(key, channel.prefix)
            if (
                path is None
                or path.endswith("/")
                or not self._link_cached(channel, position, self._root / channel.name / path)
            ):
                missing.append(position)
        return replace(
            channel,
            keys=[channel.keys[position] for position in missing],
            etags=[channel.etags[position] for position in missing],
            sizes=[channel.sizes[position] for position in missing],
        )

    def store_files(self, channels: Sequence[ChannelSpec]) -> None:
        """Add the downloaded files to the cache, and keep it within its limit."""
        for channel in filter(self._is_cached, channels):
            folder = Path(channel.cache, _FOLDER)
            folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            for position, key in enumerate(channel.keys):
                path = channel_file_path(key, channel.prefix)
                if path and not path.endswith("/"):
                    self._store_file(self._root / channel.name / path, self._cache_path(channel, position))
            _evict_oldest(folder, self._spec.objects.cache_bytes)

    def _is_cached(self, channel: ChannelSpec) -> bool:
        return bool(self._spec.objects.url and channel.cache)

    def _link_cached(self, channel: ChannelSpec, position: int, path: Path) -> bool:
        cached = self._cache_path(channel, position)
        try:
            os.utime(cached)
        except FileNotFoundError:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        return link_file(cached, path)

    def _store_file(self, file: Path, cached: Path) -> None:
        if cached.exists():
            return
        # Durable before it gets its name: after a power cut nothing would show that it is incomplete.
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
        # Another job may have been faster.
        with suppress(FileExistsError):
            link_file(file, cached)

    def _cache_path(self, channel: ChannelSpec, position: int) -> Path:
        object_ = (self._spec.account, channel.bucket, channel.keys[position])
        version = "\0".join((*object_, channel.etags[position], str(channel.sizes[position])))
        return Path(channel.cache, _FOLDER, blake2b(version.encode(), digest_size=16).hexdigest())


def _evict_oldest(folder: Path, limit_bytes: int) -> None:
    """Remove the least recently used files until the rest is within the limit."""
    files = []
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):
            status = entry.stat(follow_symlinks=False)
            files.append((status.st_mtime, status.st_size, entry.path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= limit_bytes:
            return
        Path(path).unlink(missing_ok=True)
        total -= size

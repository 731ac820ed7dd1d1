import hashlib
import os
import time
from pathlib import Path

import pytest

from trainyard.link.package_downloads import DOWNLOADS, PackageDownloads


@pytest.fixture
def downloads(tmp_path: Path) -> PackageDownloads:
    return PackageDownloads(tmp_path / "environments")


def store(downloads: PackageDownloads, content: bytes, *, used: float) -> str:
    digest = hashlib.sha256(content).hexdigest()
    with downloads.writer(digest) as writer:
        writer.write(content)
        assert writer.commit()
    os.utime(downloads.environments / DOWNLOADS / digest, (used, used))
    return digest


def names(downloads: PackageDownloads) -> list[str]:
    return sorted(path.name for path in (downloads.environments / DOWNLOADS).iterdir())


def test_a_file_is_kept_under_its_digest(downloads: PackageDownloads) -> None:
    digest = store(downloads, b"a wheel", used=1)
    file = downloads.open(digest)
    assert file is not None
    with file:
        assert file.read() == b"a wheel"
    assert time.time() - (downloads.environments / DOWNLOADS / digest).stat().st_mtime < 600
    assert downloads.open("0" * 64) is None


def test_a_file_with_another_digest_is_not_kept(downloads: PackageDownloads) -> None:
    with downloads.writer("0" * 64) as writer:
        writer.write(b"poison")
        assert not writer.commit()
    assert names(downloads) == []


def test_a_download_that_ends_early_leaves_nothing(downloads: PackageDownloads) -> None:
    with downloads.writer("0" * 64) as writer:
        writer.write(b"half")
    assert names(downloads) == []


def test_the_last_used_files_are_kept_up_to_the_limit(downloads: PackageDownloads) -> None:
    digests = [store(downloads, bytes(100) + bytes([number]), used=number + 1) for number in range(3)]
    downloads.trim(250)
    assert names(downloads) == sorted(digests[1:])
    downloads.trim(250, unused_s=60)
    assert names(downloads) == []


def test_where_nothing_was_downloaded_nothing_is_surplus(downloads: PackageDownloads) -> None:
    assert downloads.surplus(0) == []

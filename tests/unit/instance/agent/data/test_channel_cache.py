import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.disk_recorder import DiskRecorder, power_cuts
from tests.unit.instance.agent.samples import changed
from trainyard.instance.agent.data.channel_cache import ChannelFileCache
from trainyard.link.contract import ChannelSpec, ObjectsSpec

BODIES = {"set/a": b"aa", "set/deep/b": b"bbbb", "set/c": b"c"}


@pytest.fixture
def channel(tmp_path: Path) -> ChannelSpec:
    sizes = [len(body) for body in BODIES.values()]
    told = {"keys": list(BODIES), "etags": ["e1", "e2", "e3"], "sizes": sizes, "is_writable": False}
    return ChannelSpec("shared", "File", "data", "set/", cache=str(tmp_path / "cache"), **told)  # type: ignore[arg-type]


def kept_by(root: Path, cache_bytes: int = 1000, url: str = "s3://bucket") -> ChannelFileCache:
    return ChannelFileCache(changed(objects=ObjectsSpec("", url=url, cache_bytes=cache_bytes)), root)


def bring(channel: ChannelSpec, root: Path) -> None:
    """Act like a download."""
    for key in channel.keys:
        place = root / channel.name / key.removeprefix("set/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(BODIES[key])


def read(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_files_that_one_job_downloaded_are_cached_for_the_next(channel: ChannelSpec, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert kept_by(first).link_cached_files(channel).keys == list(BODIES)
    bring(channel, first)
    kept_by(first).store_files([channel])
    missing = kept_by(second).link_cached_files(channel)
    assert (missing.keys, missing.etags, missing.sizes) == ([], [], [])
    assert read(second / "shared") == read(first / "shared")


def test_another_version_is_downloaded_again(channel: ChannelSpec, tmp_path: Path) -> None:
    bring(channel, tmp_path / "first")
    kept_by(tmp_path / "first").store_files([channel])
    newer = replace(channel, etags=["e1", "new", "e3"])
    missing = kept_by(tmp_path / "second").link_cached_files(newer)
    assert (missing.keys, missing.etags, missing.sizes) == (["set/deep/b"], ["new"], [4])


def test_the_least_recently_used_file_is_removed_first(channel: ChannelSpec, tmp_path: Path) -> None:
    bring(channel, tmp_path / "first")
    for age, name in enumerate(("c", "a", "deep/b")):
        os.utime(tmp_path / "first/shared" / name, (1000 + age, 1000 + age))
    kept_by(tmp_path / "first", cache_bytes=6).store_files([channel])
    assert kept_by(tmp_path / "second").link_cached_files(channel).keys == ["set/c"]
    assert (tmp_path / "first/shared/c").read_bytes() == b"c"


def test_other_channels_and_local_objects_are_not_cached(channel: ChannelSpec, tmp_path: Path) -> None:
    usual = replace(channel, cache="")
    assert kept_by(tmp_path).link_cached_files(usual) is usual
    assert kept_by(tmp_path, url="").link_cached_files(channel) is channel
    kept_by(tmp_path).store_files([usual])
    kept_by(tmp_path, url="").store_files([channel])
    assert not (tmp_path / "cache").exists()


def test_cached_files_are_complete_after_a_power_cut(channel: ChannelSpec, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    (disk / "cache" / "files").mkdir(parents=True)
    recorder = DiskRecorder(disk)
    bring(channel, disk / "job")

    recorder.run(lambda: kept_by(disk / "job").store_files([replace(channel, cache=str(disk / "cache"))]))

    assert sorted(read(disk / "cache" / "files").values()) == sorted(BODIES.values())
    for call, left in power_cuts(recorder, tmp_path):
        assert set(read(left / "cache" / "files").values()) <= set(BODIES.values()), call

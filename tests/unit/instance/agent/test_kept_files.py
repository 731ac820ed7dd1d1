import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.disk_recorder import DiskRecorder, power_cuts
from tests.unit.instance.agent.samples import changed
from trainyard.instance.agent.kept_files import KeptFiles
from trainyard.link.contract import ChannelSpec, ObjectsSpec

BODIES = {"set/a": b"aa", "set/deep/b": b"bbbb", "set/c": b"c"}


@pytest.fixture
def channel(tmp_path: Path) -> ChannelSpec:
    sizes = [len(body) for body in BODIES.values()]
    told = {"keys": list(BODIES), "etags": ["e1", "e2", "e3"], "sizes": sizes, "is_writable": False}
    return ChannelSpec("shared", "File", "data", "set/", cache=str(tmp_path / "cache"), **told)  # type: ignore[arg-type]


def kept_by(root: Path, cache_bytes: int = 1000, url: str = "s3://bucket") -> KeptFiles:
    return KeptFiles(changed(objects=ObjectsSpec("", url=url, cache_bytes=cache_bytes)), root)


def bring(channel: ChannelSpec, root: Path) -> None:
    """What a download does."""
    for key in channel.keys:
        place = root / channel.name / key.removeprefix("set/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(BODIES[key])


def read(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_one_job_brought_is_there_for_the_next(channel: ChannelSpec, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert kept_by(first).link(channel).keys == list(BODIES)
    bring(channel, first)
    kept_by(first).keep([channel])
    missing = kept_by(second).link(channel)
    assert (missing.keys, missing.etags, missing.sizes) == ([], [], [])
    assert read(second / "shared") == read(first / "shared")


def test_another_version_has_to_be_brought_anew(channel: ChannelSpec, tmp_path: Path) -> None:
    bring(channel, tmp_path / "first")
    kept_by(tmp_path / "first").keep([channel])
    newer = replace(channel, etags=["e1", "new", "e3"])
    missing = kept_by(tmp_path / "second").link(newer)
    assert (missing.keys, missing.etags, missing.sizes) == (["set/deep/b"], ["new"], [4])


def test_what_was_not_used_for_longest_goes_first(channel: ChannelSpec, tmp_path: Path) -> None:
    bring(channel, tmp_path / "first")
    for age, name in enumerate(("c", "a", "deep/b")):
        os.utime(tmp_path / "first/shared" / name, (1000 + age, 1000 + age))
    kept_by(tmp_path / "first", cache_bytes=6).keep([channel])
    assert kept_by(tmp_path / "second").link(channel).keys == ["set/c"]
    assert (tmp_path / "first/shared/c").read_bytes() == b"c"


def test_of_other_channels_and_of_objects_of_this_machine_nothing_is_kept(channel: ChannelSpec, tmp_path: Path) -> None:
    usual = replace(channel, cache="")
    assert kept_by(tmp_path).link(usual) is usual
    assert kept_by(tmp_path, url="").link(channel) is channel
    kept_by(tmp_path).keep([usual])
    kept_by(tmp_path, url="").keep([channel])
    assert not (tmp_path / "cache").exists()


def test_what_a_power_cut_leaves_of_kept_files_is_whole(channel: ChannelSpec, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    (disk / "cache" / "files").mkdir(parents=True)
    recorder = DiskRecorder(disk)
    bring(channel, disk / "job")

    recorder.run(lambda: kept_by(disk / "job").keep([replace(channel, cache=str(disk / "cache"))]))

    assert sorted(read(disk / "cache" / "files").values()) == sorted(BODIES.values())
    for call, left in power_cuts(recorder, tmp_path):
        assert set(read(left / "cache" / "files").values()) <= set(BODIES.values()), call

"""The FIFOs of Pipe channels, fed from a real object store to readers in this process."""

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.unit.instance.agent.samples import BUCKET, changed, make_bucket, put_object
from trainyard.foundation.locations import Location
from trainyard.instance.agent.data.pipes import PipeChannels
from trainyard.instance.agent.layout import ProgramUser, create_layout
from trainyard.instance.agent.results.failure import CannotRun
from trainyard.link.contract import ChannelSpec, ObjectsSpec
from trainyard.link.folders import InstanceFolder
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.testing.eventually import eventually

OTHER_USER = 50_001
LARGE = os.urandom(3_000_000)  # more than a pipe holds


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FilesystemObjects]:
    with closing(FilesystemObjects(tmp_path / "objects")) as opened:
        make_bucket(opened)
        put_object(opened, "a", b"first ")
        put_object(opened, "b", LARGE)
        yield opened


class Fed:
    """An instance with Pipe channels."""

    def __init__(self, folder: Path, *channels: ChannelSpec, uid: int | None = None) -> None:
        self.folder = InstanceFolder(folder)
        self.folder.root.mkdir()
        self.data = self.folder.ml / "input" / "data"
        spec = changed(objects=ObjectsSpec(str(folder.parent / "objects")), channels=channels)
        create_layout(self.folder, spec, ProgramUser(uid))
        self.pipes = PipeChannels(self.folder, spec, ProgramUser(uid))

    def __enter__(self) -> "Fed":
        self.pipes.create_fifos()
        self.pipes.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.pipes.close()

    @property
    def names(self) -> set[str]:
        return {path.name for path in self.data.iterdir()}


def pipe(name: str = "train", **values: Any) -> ChannelSpec:
    return ChannelSpec(**{"name": name, "mode": "Pipe", "bucket": "yard", "prefix": "", "keys": ("a", "b")} | values)


def feeders() -> int:
    return threading.active_count() - 1


def test_every_epoch_has_its_own_fifo_and_the_next_exists_before(tmp_path: Path, store: object) -> None:
    with Fed(tmp_path / "instance", pipe()) as fed:
        for epoch in range(4):
            with (fed.data / f"train_{epoch}").open("rb") as stream:
                assert (fed.data / f"train_{epoch + 1}").is_fifo()
                assert stream.read() == b"first " + LARGE
        assert fed.pipes.failure is None


def test_a_fifo_belongs_to_the_program_and_to_nobody_else(tmp_path: Path, store: object) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    with Fed(tmp_path / "instance", pipe(), uid=OTHER_USER) as fed:
        told = (fed.data / "train_0").stat()
        assert (told.st_uid, stat.S_IMODE(told.st_mode)) == (OTHER_USER, 0o600)


def test_a_reader_that_closes_early_ends_its_epoch_only(tmp_path: Path, store: object) -> None:
    with Fed(tmp_path / "instance", pipe()) as fed:
        with (fed.data / "train_0").open("rb") as stream:
            assert stream.read(3) == b"fir"
        assert (fed.data / "train_1").read_bytes() == b"first " + LARGE
        assert fed.pipes.failure is None


def test_an_epoch_that_is_over_is_gone(tmp_path: Path, store: object) -> None:
    with Fed(tmp_path / "instance", pipe()) as fed:
        (fed.data / "train_0").read_bytes()
        assert eventually(lambda: fed.names == {"train_1", "train_2"})


def test_channels_that_are_never_opened_end_with_the_program(tmp_path: Path, store: object) -> None:
    before = feeders()
    with Fed(tmp_path / "instance", pipe(), pipe("test"), pipe("validation")):
        assert feeders() == before + 3
    assert feeders() == before


def test_channels_that_were_never_opened_are_named(tmp_path: Path, store: object) -> None:
    with Fed(tmp_path / "instance", pipe(), pipe("test"), pipe("validation")) as fed:
        (fed.data / "test_0").read_bytes()
    assert fed.pipes.unopened == ("train", "validation")


def test_a_feeder_whose_reader_has_stopped_reading_ends_with_the_program(tmp_path: Path, store: object) -> None:
    before = feeders()
    with Fed(tmp_path / "instance", pipe()) as fed:
        stream = (fed.data / "train_0").open("rb")
        assert stream.read(3) == b"fir"
    assert feeders() == before
    stream.close()


def test_after_a_failure_the_program_never_sees_the_end_of_its_data(tmp_path: Path, store: FilesystemObjects) -> None:
    with Fed(tmp_path / "instance", pipe(keys=("a", "gone"))) as fed:
        reader = os.open(fed.data / "train_0", os.O_RDONLY)
        assert os.read(reader, 100) == b"first "
        assert eventually(lambda: fed.pipes.failure is not None)
        os.set_blocking(reader, False)
        with pytest.raises(BlockingIOError):  # at the end of the pipe it would return no bytes
            os.read(reader, 100)
        os.close(reader)
    assert fed.pipes.failure is not None
    assert "s3://yard/gone" in fed.pipes.failure.message


def test_an_object_that_goes_between_two_epochs_is_a_failure(tmp_path: Path, store: FilesystemObjects) -> None:
    with Fed(tmp_path / "instance", pipe()) as fed:
        (fed.data / "train_0").read_bytes()
        store.delete(Location(BUCKET, "a"))
        reader = os.open(fed.data / "train_1", os.O_RDONLY)
        assert eventually(lambda: fed.pipes.failure is not None)
        os.close(reader)


def test_a_file_that_replaces_a_fifo_is_never_written_to(tmp_path: Path, store: object) -> None:
    precious = tmp_path / "precious"
    precious.write_text("untouched")
    with Fed(tmp_path / "instance", pipe()) as fed:
        (fed.data / "train_1").unlink()
        (fed.data / "train_1").symlink_to(precious)
        (fed.data / "train_2").symlink_to(precious)
        (fed.data / "train_0").read_bytes()
    assert precious.read_text() == "untouched"
    assert fed.pipes.failure is None


def test_a_program_may_remove_its_data_folder(tmp_path: Path, store: object) -> None:
    with Fed(tmp_path / "instance", pipe()) as fed:
        with (fed.data / "train_0").open("rb") as stream:
            for name in fed.names:
                (fed.data / name).unlink()
            fed.data.rmdir()
            assert stream.read() == b"first " + LARGE
        assert fed.pipes.failure is None


def test_a_channel_with_the_name_of_an_epoch_is_refused(tmp_path: Path, store: object) -> None:
    fed = Fed(tmp_path / "instance", pipe(), pipe("train_7", mode="File"))
    with pytest.raises(CannotRun, match="train_7 has the name of an epoch of the Pipe channel train"):
        fed.pipes.create_fifos()

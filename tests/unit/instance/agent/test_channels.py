"""File channels over a real object store, which a program can never change."""

import contextlib
import os
import traceback
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath

import pytest

from tests.unit.instance.agent.samples import BUCKET, make_bucket, put_object, read_object
from trainyard.foundation.locations import Location
from trainyard.instance.agent.channels import bring_channel, file_path
from trainyard.instance.agent.failure import CannotRun, FailureKind
from trainyard.instance.agent.layout import Owner
from trainyard.instance.agent.orders import Ordered
from trainyard.link.contract import ChannelSpec
from trainyard.objects.filesystem import FilesystemObjects

OTHER_USER = 50_001
OBJECTS = {"data/train/a.csv": b"1,2\n" * 1000, "data/train/deep/er/b.bin": bytes(range(256)), "data/train/empty": b""}

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a program as another user")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FilesystemObjects]:
    with closing(FilesystemObjects(tmp_path / "objects")) as opened:
        make_bucket(opened)
        for key, data in OBJECTS.items():
            put_object(opened, key, data)
        yield opened


def channel(*keys: str, prefix: str = "data/train", mode: str = "File") -> ChannelSpec:
    return ChannelSpec("train", mode, BUCKET.name, prefix, keys)


def bring(store: FilesystemObjects, spec: ChannelSpec, folder: Path, *, uid: int | None = None) -> dict[str, bytes]:
    bring_channel(store, spec, bucket=BUCKET, folder=folder, owner=Owner(uid), check=lambda: None)
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def ruin(folder: Path, user: int | None) -> None:
    """Let a process of that user do all that a program may try with the files of its channel."""
    child = os.fork()  # not a new Python, whose files another user may not be allowed to read
    if child == 0:
        try:
            os.chdir(folder)
            if user is not None:
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
            for path in sorted(path for path in Path().rglob("*") if path.is_file()):
                ruin_file(path)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def ruin_file(path: Path) -> None:
    second = Path("second-name")
    for attempt in (
        lambda: path.chmod(0o666),
        lambda: path.write_bytes(b"ruined"),
        lambda: os.pwrite(os.open(path, os.O_RDWR), b"ruined", 0),
        lambda: os.truncate(path, 1),
        lambda: second.hardlink_to(path),
        lambda: second.open("ab").write(b"ruined"),
        lambda: os.utime(path, (1, 1)),
        lambda: os.setxattr(path, "user.ruined", b"1"),
    ):
        with contextlib.suppress(OSError):
            attempt()
    path.unlink()
    path.write_bytes(b"unpacked over it")
    second.unlink(missing_ok=True)


@pytest.mark.parametrize("user", [None, pytest.param(OTHER_USER, marks=needs_root)])
def test_a_channel_holds_the_bytes_of_its_objects(store: FilesystemObjects, tmp_path: Path, user: int | None) -> None:
    found = bring(store, channel(*OBJECTS), tmp_path / "train", uid=user)
    assert found == {"a.csv": b"1,2\n" * 1000, "deep/er/b.bin": bytes(range(256)), "empty": b""}


@pytest.mark.parametrize("user", [None, pytest.param(OTHER_USER, marks=needs_root)])
def test_nothing_a_program_does_to_its_files_changes_a_stored_object(
    store: FilesystemObjects, tmp_path: Path, user: int | None
) -> None:
    folder = tmp_path / "train"
    bring(store, channel(*OBJECTS), folder, uid=user)
    before = [store.info(Location(BUCKET, key)) for key in OBJECTS]
    ruin(folder, user)
    assert {path.read_bytes() for path in folder.rglob("*") if path.is_file()} == {b"unpacked over it"}
    assert {key: read_object(store, key) for key in OBJECTS} == OBJECTS
    assert [store.info(Location(BUCKET, key)) for key in OBJECTS] == before
    assert store.verify(deep=True) == []


@needs_root
def test_files_of_another_user_are_links_and_take_no_space(store: FilesystemObjects, tmp_path: Path) -> None:
    bring(store, channel("data/train/a.csv"), tmp_path / "train", uid=OTHER_USER)
    file = tmp_path / "train" / "a.csv"
    assert file.stat().st_nlink == 2
    assert file.stat().st_uid == 0
    assert file.parent.stat().st_uid == OTHER_USER


def test_files_of_the_same_user_are_its_own(store: FilesystemObjects, tmp_path: Path) -> None:
    bring(store, channel("data/train/a.csv"), tmp_path / "train")
    file = tmp_path / "train" / "a.csv"
    assert file.stat().st_nlink == 1
    file.write_bytes(b"mine")
    assert read_object(store, "data/train/a.csv") == OBJECTS["data/train/a.csv"]


def test_an_object_replaced_afterwards_does_not_change_the_channel(store: FilesystemObjects, tmp_path: Path) -> None:
    bring(store, channel("data/train/a.csv"), tmp_path / "train")
    put_object(store, "data/train/a.csv", b"newer")
    assert (tmp_path / "train" / "a.csv").read_bytes() == OBJECTS["data/train/a.csv"]


@pytest.mark.parametrize(
    ("key", "prefix", "path"),
    [
        ("data/train/a.csv", "data/train/", "a.csv"),
        ("data/train/a.csv", "data/train", "a.csv"),
        ("data/train/x/a.csv", "data/train", "x/a.csv"),
        ("data/train/a.csv", "data/train/a.csv", "a.csv"),
        ("data/train2/a.csv", "data/train", "train2/a.csv"),
        ("data/part-01", "data/part-", "part-01"),
        ("a.csv", "", "a.csv"),
        ("a//b.csv", "", "a/b.csv"),
        ("data/train/", "data/train/", "."),
        ("data/train/sub/", "data/train", "sub"),
    ],
)
def test_a_file_lies_where_its_key_goes_on_after_the_prefix(key: str, prefix: str, path: str) -> None:
    assert file_path(key, prefix) == PurePosixPath(path)


@pytest.mark.parametrize("key", ["d/../../x", "d/..", "d/./x", "d/\0", f"d/{'x' * 300}", f"d/{'é' * 130}"])
def test_a_key_that_no_file_can_have_is_refused(store: FilesystemObjects, tmp_path: Path, key: str) -> None:
    assert file_path(key, "d") is None
    with pytest.raises(CannotRun, match="not a path") as caught:
        bring(store, channel(key, prefix="d"), tmp_path / "train")
    assert caught.value.kind is FailureKind.BAD_INPUT


def test_markers_of_folders_become_folders(store: FilesystemObjects, tmp_path: Path) -> None:
    put_object(store, "data/train/", b"")
    put_object(store, "data/train/later/", b"")
    bring(store, channel("data/train/", "data/train/later/"), tmp_path / "train")
    assert (tmp_path / "train" / "later").is_dir()


def test_two_objects_that_cannot_both_be_files_are_refused(store: FilesystemObjects, tmp_path: Path) -> None:
    put_object(store, "data/train/a.csv/b", b"")
    with pytest.raises(CannotRun, match="has a part of its key as its own"):
        bring(store, channel("data/train/a.csv", "data/train/a.csv/b"), tmp_path / "train")


def test_an_object_that_is_gone_is_named(store: FilesystemObjects, tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match=r"s3://yard/data/train/lost of channel train .* does not exist") as caught:
        bring(store, channel("data/train/lost"), tmp_path / "train")
    assert caught.value.kind is FailureKind.BAD_INPUT


def test_a_channel_without_objects_is_an_empty_folder(store: FilesystemObjects, tmp_path: Path) -> None:
    assert bring(store, channel(), tmp_path / "train") == {}
    assert (tmp_path / "train").is_dir()


def test_an_input_mode_that_is_not_served_is_refused(store: FilesystemObjects, tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="Pipe"):
        bring(store, channel(mode="Pipe"), tmp_path / "train")


def test_bringing_ends_between_two_objects_when_ordered(store: FilesystemObjects, tmp_path: Path) -> None:
    asked = iter([None])

    def check() -> None:
        if next(asked, Ordered) is Ordered:
            raise Ordered

    with pytest.raises(Ordered):
        bring_channel(
            store, channel(*OBJECTS), bucket=BUCKET, folder=tmp_path / "train", owner=Owner(None), check=check
        )
    assert [path.name for path in (tmp_path / "train").iterdir()] == ["a.csv"]

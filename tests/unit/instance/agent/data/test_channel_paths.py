"""The mounts of channels, and the files that replace them when nothing can be mounted."""

import contextlib
import os
import stat
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.instance.agent.samples import BUCKET, make_bucket, put_object, read_object
from trainyard.foundation.confined import remove_tree
from trainyard.foundation.locations import Location
from trainyard.instance.agent.data.channel_paths import ChannelMounts, needs_files
from trainyard.instance.agent.data.channels import stage_channel, stage_channels
from trainyard.instance.agent.layout import ProgramUser
from trainyard.instance.sandbox.contract import Bind, CopyOnWrite
from trainyard.link.contract import ChannelSpec
from trainyard.link.folders import InstanceFolder
from trainyard.objects.filesystem import FilesystemObjects

OTHER_USER = 50_001
OBJECTS = {"data/a.csv": b"1,2\n" * 1000, "data/deep/er/b.bin": bytes(range(256)), "data/empty": b""}
FILES = {"a.csv": OBJECTS["data/a.csv"], "deep/er/b.bin": OBJECTS["data/deep/er/b.bin"], "empty": b""}

FILE = ChannelSpec("train", "File", BUCKET.name, "data", tuple(OBJECTS))
FAST = ChannelSpec("fast", "FastFile", BUCKET.name, "data", tuple(OBJECTS))
PIPE = ChannelSpec("pipe", "Pipe", BUCKET.name, "data", tuple(OBJECTS))

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a program as another user")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FilesystemObjects]:
    with closing(FilesystemObjects(tmp_path / "objects")) as opened:
        make_bucket(opened)
        for key, data in OBJECTS.items():
            put_object(opened, key, data)
        yield opened


@pytest.fixture
def folder(store: FilesystemObjects, tmp_path: Path) -> InstanceFolder:
    """An instance with staged channels of both kinds."""
    made = InstanceFolder(tmp_path / "instance")
    (made.ml / "input/data").mkdir(parents=True)
    for channel in (FILE, FAST):
        stage_channel(store, channel, bucket=BUCKET, folder=made.channels / channel.name, check=lambda: None)
    return made


@pytest.fixture
def shared(tmp_path: Path) -> ChannelSpec:
    """A directory of this machine, as a channel."""
    (tmp_path / "shared/sets").mkdir(parents=True)
    (tmp_path / "shared/sets/c.csv").write_text("3")
    return ChannelSpec("sets", "File", "", "", folder=str(tmp_path / "shared"), directory="sets", is_writable=False)


def places(folder: InstanceFolder, *channels: ChannelSpec, user: int | None = None) -> ChannelMounts:
    return ChannelMounts(folder, channels, owner=ProgramUser(user))


def placed(folder: InstanceFolder, name: str) -> dict[str, bytes]:
    place = folder.ml / "input/data" / name
    return {str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


def ruin(folder: Path, user: int | None) -> None:
    """Let a process of that user try everything that a program could do with the files of its channel."""
    child = os.fork()  # not a new Python: that user may not be allowed to read its files
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


def as_user(folder: Path, user: int, work: Callable[[], str]) -> str:
    """Return what `work` reports from a process of that user in a folder."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.chdir(folder)
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            os.write(writer, work().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    os.waitpid(child, 0)
    return text


def refused_attempts() -> str:
    file = Path("a.csv")
    assert file.read_bytes() == FILES["a.csv"]
    attempts: dict[str, Callable[[], object]] = {
        "write": lambda: file.open("r+b"),
        "unlink": file.unlink,
        "add": lambda: Path("deep/new").write_bytes(b"new"),
        "chmod": lambda: file.chmod(0o666),
        "rename": lambda: Path("deep").rename("other"),
    }
    refused = []
    for name, attempt in attempts.items():
        try:
            attempt()
        except PermissionError:
            refused.append(name)
    return " ".join(refused)


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


def test_a_file_channel_is_shown_copy_on_write_with_its_changes_in_the_scratch(folder: InstanceFolder) -> None:
    shown = places(folder, FILE)
    target = "/opt/ml/input/data/train"
    assert shown.copy_on_write == [CopyOnWrite(folder.channels / "train", target, folder.scratch / "channels/train")]
    assert (shown.read_only, shown.writable) == ([], [])


def test_a_fast_file_channel_is_shown_read_only(folder: InstanceFolder) -> None:
    shown = places(folder, FAST)
    assert shown.read_only == [Bind(folder.channels / "fast", "/opt/ml/input/data/fast")]
    assert (shown.copy_on_write, shown.writable) == ([], [])


def test_files_of_a_file_system_that_may_only_be_read_are_shown_so(folder: InstanceFolder) -> None:
    shown = places(folder, replace(FILE, is_writable=False))
    assert shown.read_only == [Bind(folder.channels / "train", "/opt/ml/input/data/train")]
    assert (shown.copy_on_write, shown.writable) == ([], [])


@pytest.mark.parametrize("is_writable", [False, True])
def test_a_directory_of_this_machine_is_mounted_as_it_is_and_not_copied(
    folder: InstanceFolder, tmp_path: Path, is_writable: bool
) -> None:
    channel = ChannelSpec("sets", "File", "", "", folder=str(tmp_path), directory="a/b", is_writable=is_writable)
    shown = places(folder, channel)
    bind = Bind(tmp_path, "/opt/ml/input/data/sets", below="a/b")
    assert (shown.read_only, shown.writable) == (([], [bind]) if is_writable else ([bind], []))
    assert not needs_files(channel)


def test_a_pipe_has_no_files(folder: InstanceFolder) -> None:
    shown = places(folder, PIPE)
    shown.place_all()
    assert not needs_files(PIPE)
    assert (shown.copy_on_write, shown.read_only, shown.writable) == ([], [], [])
    assert placed(folder, "pipe") == {}


@pytest.mark.parametrize("user", [None, pytest.param(OTHER_USER, marks=needs_root)])
def test_without_copy_on_write_the_files_are_put_in_place_and_no_longer_mounted(
    folder: InstanceFolder, user: int | None
) -> None:
    shown = places(folder, FILE, FAST, user=user)
    shown.place_files()
    assert placed(folder, "train") == FILES
    assert placed(folder, "fast") == {}
    assert shown.copy_on_write == []
    assert [bind.target for bind in shown.read_only] == ["/opt/ml/input/data/fast"]


def test_without_namespaces_everything_is_put_in_place(folder: InstanceFolder, shared: ChannelSpec) -> None:
    shown = places(folder, FILE, FAST, shared)
    shown.place_all()
    assert placed(folder, "train") == placed(folder, "fast") == FILES
    assert (folder.ml / "input/data/sets/c.csv").read_text() == "3"
    assert (shown.copy_on_write, shown.read_only, shown.writable) == ([], [], [])


def test_without_namespaces_read_only_channels_rely_on_file_modes_and_that_is_reported(
    folder: InstanceFolder, shared: ChannelSpec
) -> None:
    shown = places(folder, FILE, FAST, shared)
    shown.place_all()
    fast = folder.ml / "input/data/fast"
    modes = {path.is_dir(): stat.S_IMODE(path.stat().st_mode) for path in (fast, *fast.rglob("*"))}
    assert modes == {True: 0o555, False: 0o444}
    assert all(os.access(path, os.W_OK) for path in (folder.ml / "input/data/train").rglob("*"))
    of_fast, of_shared = shown.not_enforced
    assert of_fast.startswith("Channel fast is read-only only by the modes of its files")
    assert of_shared.startswith("The folder of channel sets is not read-only")
    remove_tree(folder.ml)
    assert not folder.ml.exists()


@needs_root
def test_without_namespaces_another_user_cannot_change_what_may_only_be_read(
    store: FilesystemObjects, folder: InstanceFolder
) -> None:
    shown = places(folder, FILE, FAST, user=OTHER_USER)
    shown.place_all()
    for path in (folder.root, *folder.root.parents[:2]):
        path.chmod(0o755)
    refused = as_user(folder.ml / "input/data/fast", OTHER_USER, refused_attempts)
    assert refused == "write unlink add chmod rename"
    assert placed(folder, "fast") == FILES
    assert shown.not_enforced == []


@pytest.mark.parametrize("user", [None, pytest.param(OTHER_USER, marks=needs_root)])
def test_nothing_a_program_does_to_files_in_place_changes_a_stored_object(
    store: FilesystemObjects, folder: InstanceFolder, user: int | None
) -> None:
    places(folder, FILE, user=user).place_files()
    before = [store.info(Location(BUCKET, key)) for key in OBJECTS]
    ruin(folder.ml / "input/data/train", user)
    assert set(placed(folder, "train").values()) == {b"unpacked over it"}
    assert {key: read_object(store, key) for key in OBJECTS} == OBJECTS
    assert [store.info(Location(BUCKET, key)) for key in OBJECTS] == before
    assert store.verify(deep=True) == []


@needs_root
def test_files_in_place_of_another_user_are_links_and_take_no_space(folder: InstanceFolder) -> None:
    places(folder, FILE, user=OTHER_USER).place_files()
    file = folder.ml / "input/data/train/a.csv"
    assert (file.stat().st_nlink, file.stat().st_uid, file.parent.stat().st_uid) == (4, 0, OTHER_USER)


def test_files_in_place_of_the_same_user_are_its_own(store: FilesystemObjects, folder: InstanceFolder) -> None:
    places(folder, FILE).place_files()
    file = folder.ml / "input/data/train/a.csv"
    assert file.stat().st_nlink == 1
    file.write_bytes(b"mine")
    assert read_object(store, "data/a.csv") == OBJECTS["data/a.csv"]


def test_channels_with_paths_are_shown_there_and_one_in_the_folder_of_another_is_a_part_of_it(
    store: FilesystemObjects, tmp_path: Path
) -> None:
    folder = InstanceFolder(tmp_path / "processing")
    (folder.ml / "processing").mkdir(parents=True)
    inner = replace(FILE, name="../deps", path="/opt/ml/processing/code/deps")
    outer = replace(FILE, name="a/b", prefix="data/a.csv", keys=("data/a.csv",), path="/opt/ml/processing/code")
    stage_channels(store, [inner, outer], account=BUCKET.account, root=folder.channels, check=lambda: None)
    staged = folder.channels / "processing/code"
    assert (staged / "a.csv").read_bytes() == (staged / "deps/a.csv").read_bytes() == OBJECTS["data/a.csv"]
    mounts = places(folder, inner, outer)
    assert mounts.copy_on_write == [
        CopyOnWrite(staged, "/opt/ml/processing/code", folder.scratch / "channels/processing/code")
    ]
    mounts.place_files()
    assert (folder.ml / "processing/code/deps/deep/er/b.bin").read_bytes() == OBJECTS["data/deep/er/b.bin"]
    assert mounts.copy_on_write == []

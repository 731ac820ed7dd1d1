"""What is done in a tree that a program wrote never leads out of it, whatever the program left or changes meanwhile."""

import ctypes
import errno
import os
import re
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from trainyard.foundation.confined import ConfinedFolder, remove_tree, tree_size

OTHER_USER = 50_001
DEEP = 3000  # folders within each other, whose path is longer than any that the kernel takes
OPENED = 0x20  # IN_OPEN
TRIES = 300  # of each operation while a folder is swapped

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the host that no operation may touch."""
    made = tmp_path / "outside"
    (made / "deep").mkdir(parents=True)
    (made / "file").write_text("secret")
    (made / "deep" / "file").write_text("secret")
    return made


@pytest.fixture
def ml(tmp_path: Path, outside: Path) -> Path:
    assert outside.is_dir()
    (tmp_path / "ml" / "output").mkdir(parents=True)
    return tmp_path / "ml"


@pytest.fixture
def folder(ml: Path) -> Iterator[ConfinedFolder]:
    with ConfinedFolder.open(ml) as opened:
        yield opened


def state_of(tree: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Names, rights, owners and contents, which change when anything is done to a tree."""
    found = {}
    for path in (tree, *sorted(tree.rglob("*"))):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        found[str(path.relative_to(tree))] = (status.st_mode, status.st_uid, status.st_nlink, content)
    return found


@pytest.fixture
def deep(ml: Path) -> Iterator[Path]:
    """A chain of folders with a file at its end. It is removed again, which pytest itself could not."""
    make_deep(ml / "deep")
    yield ml / "deep"
    remove_tree(ml / "deep")


def make_deep(top: Path) -> None:
    top.mkdir()
    descriptor = os.open(top, os.O_RDONLY)
    for _ in range(DEEP):
        os.mkdir("deeper", dir_fd=descriptor)
        inner = os.open("deeper", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    bottom = os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor)
    os.write(bottom, b"x" * 1000)
    os.close(bottom)
    os.close(descriptor)


def read(folder: ConfinedFolder, path: str = "output/failure") -> str | None:
    return folder.read_text(path, limit_bytes=100)


def test_a_file_is_read_as_far_as_asked_and_from_where(ml: Path, folder: ConfinedFolder) -> None:
    (ml / "output" / "failure").write_bytes(b"y" + b"x" * 200 + b"\xff")
    assert read(folder) == "y" + "x" * 99
    assert folder.read("output/failure", limit_bytes=1000, offset=200) == b"x\xff"
    assert folder.read("output/failure", limit_bytes=1000, offset=5000) == b""


def test_a_text_is_read_whatever_its_bytes_are(ml: Path, folder: ConfinedFolder) -> None:
    (ml / "output" / "failure").write_bytes(b"h\xffllo \xe2\x82")
    assert read(folder) == "h\ufffdllo \ufffd"


def test_only_the_requested_part_of_a_huge_file_is_read(ml: Path, folder: ConfinedFolder) -> None:
    with (ml / "huge").open("wb") as file:
        file.truncate(1 << 40)
    assert folder.read("huge", limit_bytes=10, offset=(1 << 40) - 5) == bytes(5)


def test_no_more_memory_is_allocated_than_a_file_has_bytes(ml: Path, folder: ConfinedFolder) -> None:
    (ml / "small").write_bytes(b"bytes")
    assert folder.read("small", limit_bytes=1 << 60) == b"bytes"
    assert folder.read("small", limit_bytes=1 << 60, offset=1 << 55) == b""


def test_a_missing_path_is_nothing(ml: Path, folder: ConfinedFolder) -> None:
    assert read(folder) is None
    (ml / "output").rmdir()
    assert read(folder) is None
    assert folder.status("output/failure") is None


def test_a_file_that_is_a_link_is_nothing(ml: Path, folder: ConfinedFolder, outside: Path) -> None:
    (ml / "output" / "failure").symlink_to(outside / "file")
    assert read(folder) is None
    assert not folder.has_file("output/failure")


def test_only_regular_files_are_opened(ml: Path, folder: ConfinedFolder) -> None:
    """Opening a device may have effects, and opening a pipe lets a writer go on."""
    os.mkfifo(ml / "pipe")
    (ml / "file").write_text("own")
    libc = ctypes.CDLL(None, use_errno=True)
    inotify = libc.inotify_init1(os.O_NONBLOCK)
    for name in ("pipe", "file"):
        assert libc.inotify_add_watch(inotify, os.fsencode(ml / name), OPENED) > 0
    assert folder.read("pipe", limit_bytes=10) is None
    with pytest.raises(BlockingIOError):
        os.read(inotify, 4096)
    assert folder.read("file", limit_bytes=10) == b"own"
    assert os.read(inotify, 4096)
    os.close(inotify)


def test_a_pipe_a_socket_or_a_folder_in_its_place_does_not_block(ml: Path, folder: ConfinedFolder) -> None:
    place = ml / "output" / "failure"
    os.mkfifo(place)
    assert read(folder) is None
    place.unlink()
    place.mkdir()
    assert read(folder) is None
    place.rmdir()
    with socket.socket(socket.AF_UNIX) as listener:
        folder.bind_socket(listener, "output/failure")
        assert read(folder) is None


Operation = Callable[[ConfinedFolder], object]
OPERATIONS: dict[str, Operation] = {
    "open a folder": lambda folder: folder.open_folder("led/deep").close(),
    "make a folder": lambda folder: folder.make_folder("led/new", owner=os.geteuid()).close(),
    "open a file": lambda folder: os.close(folder.open_file("led/file")),
    "create a file": lambda folder: os.close(folder.create_file("led/new")),
    "replace a file": lambda folder: folder.replace_file("led/file", b"forged"),
    "make a link": lambda folder: folder.make_link("led/new", "/"),
    "link a file": lambda folder: folder.link_file("/proc/self/fd/0", "led/new"),
    "set rights": lambda folder: folder.set_mode("led/file", 0o777),
    "unlink a file": lambda folder: folder.unlink("led/file"),
    "remove a folder": lambda folder: folder.remove("led/deep"),
    "bind a socket": lambda folder: folder.bind_socket(socket.socket(socket.AF_UNIX), "led/new"),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # a socket that was not bound
def test_no_operation_goes_through_a_linked_folder(name: str, ml: Path, folder: ConfinedFolder, outside: Path) -> None:
    (ml / "led").symlink_to(outside)
    before = state_of(outside)
    with pytest.raises(OSError, match=r"."):
        OPERATIONS[name](folder)
    assert state_of(outside) == before


@pytest.mark.parametrize("path", ["../outside/file", "output/../../outside/file", "/etc/passwd"])
def test_a_path_that_leads_out_is_refused(path: str, folder: ConfinedFolder) -> None:
    with pytest.raises(OSError, match="leads out"):
        folder.replace_file(path, b"forged")
    assert folder.read(path, limit_bytes=100) is None


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_written_through(
    ml: Path, folder: ConfinedFolder, outside: Path
) -> None:
    before = state_of(outside)
    (ml / "word").symlink_to(outside / "file")
    folder.replace_file("word", b"new")
    assert (ml / "word").read_text() == "new"
    assert not (ml / "word").is_symlink()
    assert state_of(outside) == before
    assert [path.name for path in ml.iterdir() if path.name.startswith(".")] == []


def test_a_file_that_cannot_be_replaced_leaves_nothing(ml: Path, folder: ConfinedFolder) -> None:
    (ml / "word" / "full").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        folder.replace_file("word", b"new")
    assert sorted(path.name for path in ml.iterdir()) == ["output", "word"]


@needs_root
def test_only_what_is_made_is_given_away(ml: Path, folder: ConfinedFolder) -> None:
    folder.make_folder("output/new/inner", owner=OTHER_USER).close()
    folder.replace_file("output/new/file", b"1", owner=OTHER_USER)
    owners = {str(path.relative_to(ml)): path.stat().st_uid for path in ml.rglob("*")}
    assert owners == {
        "output": 0,
        "output/new": OTHER_USER,
        "output/new/inner": OTHER_USER,
        "output/new/file": OTHER_USER,
    }


@needs_root
def test_a_tree_is_given_away_with_its_links_but_not_what_they_lead_to(
    ml: Path, folder: ConfinedFolder, outside: Path, deep: Path
) -> None:
    (ml / "output" / "link").symlink_to(outside / "file")
    (ml / "around").symlink_to(outside)
    before = state_of(outside)
    folder.give(OTHER_USER)
    assert {entry.status.st_uid for entry in folder.walk()} == {OTHER_USER}
    assert {ml.stat().st_uid, deep.stat().st_uid} == {OTHER_USER}
    assert state_of(outside) == before


def test_what_vanishes_while_a_tree_is_given_away_is_passed_over(
    ml: Path, folder: ConfinedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (ml / name).touch()
    chown, given = os.chown, []

    def vanish_first(name: str, *owners: int, **where: Any) -> None:
        if name == "b":
            (ml / "b").unlink()
        chown(name, *owners, **where)
        given.append(name)

    monkeypatch.setattr(os, "chown", vanish_first)
    folder.give(os.geteuid())
    assert sorted(given) == ["a", "c", "output"]


def test_a_walk_comes_to_everything_however_deep_and_through_no_link(
    ml: Path, folder: ConfinedFolder, outside: Path, deep: Path
) -> None:
    (ml / "output" / "file").write_text("1")
    (ml / "around").symlink_to(outside)
    (ml / "self").symlink_to(ml)
    names = [entry.name for entry in folder.walk()]
    assert sorted(set(names)) == ["around", "bottom", deep.name, "deeper", "file", "output", "self"]
    assert names.count("deeper") == DEEP
    assert tree_size(ml) == 1001


def test_a_walk_notices_that_its_folder_was_moved_away(ml: Path, folder: ConfinedFolder, outside: Path) -> None:
    (ml / "a" / "b" / "c").mkdir(parents=True)
    (ml / "a" / "b" / "z").mkdir()
    (ml / "a" / "d").mkdir()
    seen = []

    def look() -> None:
        for entry in folder.walk():
            seen.append(entry.name)
            if entry.name in ("c", "z") and (ml / "a" / "b").exists():
                (ml / "a" / "b").rename(outside / "b")

    with pytest.raises(OSError, match="moved") as raised:
        look()
    assert raised.value.errno == errno.ESTALE
    assert "file" not in seen  # of the folder that ".." led to


def test_a_removal_removes_the_whole_tree_and_no_target_of_its_links(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard.foundation.confined._MAX_NAMES", 3)
    tree = tmp_path / "tree"
    for number in range(10):
        (tree / f"folder-{number}" / "inner").mkdir(parents=True)
        (tree / f"folder-{number}" / "file").touch(mode=0o000)
        (tree / "folder-4" / f"inner-{number}" / "deep").mkdir(parents=True)
    (tree / "link").symlink_to(outside)
    (tree / "folder-0/file-link").symlink_to(outside / "file")
    os.mkfifo(tree / "folder-2/pipe")
    (tree / "folder-1/inner").chmod(0)
    (tree / "folder-1").chmod(0)
    before = state_of(outside)
    remove_tree(tree)
    remove_tree(tree)
    assert not tree.exists()
    assert state_of(outside) == before


def test_a_tree_deeper_than_any_path_is_removed(deep: Path) -> None:
    remove_tree(deep.parent)
    assert not deep.parent.exists()


def test_of_a_link_in_the_place_of_a_tree_only_the_link_is_removed(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "tree").symlink_to(outside)
    before = state_of(outside)
    assert tree_size(tmp_path / "tree") == 0
    remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").is_symlink()
    assert state_of(outside) == before


def test_paths_closed_by_their_owner_are_opened_except_files_with_another_name(ml: Path, outside: Path) -> None:
    (ml / "closed" / "inner").mkdir(parents=True)
    (ml / "closed" / "inner" / "file").write_text("1")
    (ml / "shared").hardlink_to(outside / "file")
    for path in (ml / "closed/inner/file", ml / "closed/inner", ml / "closed", outside / "file"):
        path.chmod(0)
    assert as_ordinary_user(ml, lambda folder: str(folder.read("closed/inner/file", limit_bytes=10))) == "b'1'"
    assert as_ordinary_user(ml, lambda folder: str(folder.read("shared", limit_bytes=10))) == "None"
    assert stat.S_IMODE((outside / "file").stat().st_mode) == 0
    modes = [stat.S_IMODE((ml / path).stat().st_mode) for path in ("closed", "closed/inner", "closed/inner/file")]
    assert modes == [0o500, 0o500, 0o400], "no more rights than it takes"


def test_a_pipe_or_a_socket_that_was_closed_stays_so(ml: Path) -> None:
    os.mkfifo(ml / "pipe", 0)
    with socket.socket(socket.AF_UNIX) as listener, ConfinedFolder.open(ml) as opened:
        opened.bind_socket(listener, "socket", mode=0)

        def look(folder: ConfinedFolder) -> str:
            for name in ("pipe", "socket"):
                with suppress(OSError):
                    folder.open_file(name)
            try:
                folder.open_file("pipe")
            except OSError as error:
                return f"{error.errno}"
            return "opened"

        assert as_ordinary_user(ml, look) == str(errno.EINVAL)
    assert [mode_of(ml / name) for name in ("pipe", "socket")] == [0, 0]


def test_a_folder_that_is_only_read_stays_read_only(ml: Path) -> None:
    (ml / "fixed").mkdir()
    (ml / "fixed" / "file").write_text("1")
    (ml / "fixed").chmod(0o555)
    assert as_ordinary_user(ml, lambda folder: str(folder.read("fixed/file", limit_bytes=10))) == "b'1'"
    assert stat.S_IMODE((ml / "fixed").stat().st_mode) == 0o555


def as_ordinary_user(ml: Path, work: Callable[[ConfinedFolder], str], *, owns_it: bool = True) -> str:
    """What is said by a process without root's rights, which owns the tree unless it is said not to."""
    for path in (ml, *ml.rglob("*")) if owns_it and os.geteuid() == 0 else ():
        os.chown(path, OTHER_USER, OTHER_USER, follow_symlinks=False)
    reader, writer = os.pipe()
    opened = ConfinedFolder.open(ml)
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(OTHER_USER, OTHER_USER, OTHER_USER)
                os.setresuid(OTHER_USER, OTHER_USER, OTHER_USER)
            os.write(writer, work(opened).encode())
        finally:
            os._exit(0)
    os.close(writer)
    opened.close()
    os.waitpid(child, 0)
    with os.fdopen(reader) as said:
        return said.read()


@contextmanager
def swapped(ml: Path, outside: Path) -> Iterator[None]:
    """A thread that has `led` be a folder and a link to the outside by turns, as fast as it can."""
    (ml / "folder" / "deep").mkdir(parents=True)
    (ml / "folder" / "file").write_text("own")
    (ml / "link").symlink_to(outside)
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            for each in ("folder", "link"):
                with suppress(OSError):
                    (ml / each).rename(ml / "led")
                    (ml / "led").rename(ml / each)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_folder_that_is_swapped_for_a_link_all_the_time_leads_no_operation_out(
    name: str, ml: Path, folder: ConfinedFolder, outside: Path
) -> None:
    before = state_of(outside)
    with swapped(ml, outside):
        for _ in range(TRIES):
            with suppress(OSError):
                OPERATIONS[name](folder)
            with suppress(OSError):
                folder.remove("led/new")
    assert state_of(outside) == before


def test_a_walk_and_a_removal_are_not_led_out_by_swaps_either(ml: Path, folder: ConfinedFolder, outside: Path) -> None:
    (outside / "only-outside").mkdir()
    before = state_of(outside)
    seen = set()
    with swapped(ml, outside):
        for _ in range(TRIES):
            with suppress(OSError):
                seen |= {entry.name for entry in folder.walk()}
            assert folder.read("led/file", limit_bytes=10) in (None, b"own")
    assert "only-outside" not in seen
    with swapped_links(ml, outside):
        for number in range(TRIES):
            (ml / "built" / f"{number}" / "inner").mkdir(parents=True, exist_ok=True)
            with suppress(OSError):
                (ml / "built").rename(ml / "removed")
            with suppress(OSError):
                folder.remove("removed")
    assert state_of(outside) == before


@contextmanager
def swapped_links(ml: Path, outside: Path) -> Iterator[None]:
    """A thread that puts links to the outside wherever a folder is being removed."""
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            with suppress(OSError):
                for path in list((ml / "removed").iterdir()):
                    path.rename(ml / "aside")
                    path.symlink_to(outside)
                    (ml / "aside").rename(ml / f"aside-{path.name}")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_socket_may_be_deeper_than_an_address_can_be_long(ml: Path, folder: ConfinedFolder) -> None:
    deep = "/".join(["x" * 100] * 5)
    folder.make_folder(deep).close()
    (ml / deep / "told").write_text("in its place")
    with socket.socket(socket.AF_UNIX) as listener:
        folder.bind_socket(listener, f"{deep}/told", mode=0o600)
        found = (ml / deep / "told").stat()
    assert stat.S_ISSOCK(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o600


def test_a_link_is_reported_and_not_followed(ml: Path, folder: ConfinedFolder, outside: Path) -> None:
    (ml / "deep").mkdir()
    (ml / "deep" / "led").symlink_to(outside)
    assert folder.read_link("deep/led") == str(outside)
    assert folder.status("deep/led/file") is None
    with pytest.raises(OSError, match="It is a link"):
        folder.set_mode("deep/led", 0o777)


class SwappingSocket(socket.socket):
    """Binds, and has something else take the place of what was bound, as a program might."""

    def __init__(self, place: Path, swap: Callable[[Path], object]) -> None:
        super().__init__(socket.AF_UNIX)
        self._place = place
        self._swap = swap

    def bind(self, address: Any, /) -> None:
        super().bind(address)
        self._place.unlink()
        self._swap(self._place)


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_replacement_of_a_socket_is_neither_opened_nor_given_away(
    ml: Path, folder: ConfinedFolder, outside: Path, kind: str
) -> None:
    swaps = {
        "file": lambda place: place.hardlink_to(outside / "file"),
        "link": lambda place: place.symlink_to(outside / "file"),
    }
    before = state_of(outside)
    with SwappingSocket(ml / "told", swaps[kind]) as listener, pytest.raises(OSError, match="not the socket") as raised:
        folder.bind_socket(listener, "told", owner=os.geteuid(), mode=0o666)
    assert (raised.value.errno, raised.value.filename) == (errno.ENOTSOCK, "told")
    (ml / "told").unlink()
    assert state_of(outside) == before


def test_every_descriptor_is_given_back(ml: Path, folder: ConfinedFolder, outside: Path) -> None:
    (ml / "led").symlink_to(outside)
    (ml / "own" / "deep").mkdir(parents=True)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only their number counts
    for name, operation in OPERATIONS.items():
        if name != "bind a socket":
            with suppress(OSError):
                operation(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        folder.bind_socket(listener, "own/deep/socket")
    list(folder.walk())
    folder.make_folder("own/deep/new").close()
    folder.set_mode("own/deep", 0o700)
    with suppress(OSError):
        folder.set_mode("led", 0o700)
    folder.remove("own")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_what_is_made_has_the_rights_that_were_asked_for(ml: Path, folder: ConfinedFolder, umask: int) -> None:
    os.close(folder.create_file("created"))
    os.close(folder.create_file("private", mode=0o600))
    folder.replace_file("replaced", b"")
    folder.replace_file("shared", b"", mode=0o666)
    folder.make_folder("folder").close()
    folder.make_folder("closed", mode=0o700).close()
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        folder.bind_socket(first, "socket")
        folder.bind_socket(second, "open", mode=0o666)
    modes = {path.name: mode_of(path) for path in ml.iterdir()}
    assert modes == {
        "output": modes["output"],
        "created": 0o644,
        "private": 0o600,
        "replaced": 0o644,
        "shared": 0o666,
        "folder": 0o755 & ~umask,
        "closed": 0o700,
        "socket": 0o600,
        "open": 0o666,
    }


@needs_root
def test_what_is_made_is_given_to_its_owner_and_the_group_of_that(ml: Path, folder: ConfinedFolder) -> None:
    os.close(folder.create_file("created", owner=OTHER_USER))
    folder.replace_file("replaced", b"", owner=OTHER_USER)
    folder.make_folder("folder", owner=OTHER_USER).close()
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        folder.bind_socket(first, "socket", owner=OTHER_USER)
        folder.bind_socket(second, "own")
    owners = {path.name: (path.lstat().st_uid, path.lstat().st_gid) for path in ml.iterdir()}
    given = dict.fromkeys(("created", "replaced", "folder", "socket"), (OTHER_USER, OTHER_USER))
    assert owners == given | dict.fromkeys(("output", "own"), (0, 0))


@needs_root
def test_a_folder_that_was_there_keeps_its_owner(ml: Path, folder: ConfinedFolder) -> None:
    folder.make_folder("output", owner=OTHER_USER).close()
    assert (ml / "output").stat().st_uid == 0


def test_an_existing_name_is_not_created_again(ml: Path, folder: ConfinedFolder, outside: Path) -> None:
    (ml / "file").write_text("old")
    (ml / "link").symlink_to(outside / "new")
    for name in ("file", "link", "output"):
        with pytest.raises(FileExistsError):
            folder.create_file(name)
    assert (ml / "file").read_text() == "old"
    assert not (outside / "new").exists()


def test_a_file_is_created_for_writing_and_opened_for_reading(ml: Path, folder: ConfinedFolder) -> None:
    with os.fdopen(folder.create_file("output/file"), "wb") as file:
        file.write(b"bytes")
    with os.fdopen(folder.open_file("output/file"), "rb") as file:
        assert file.read() == b"bytes"
        assert not os.get_inheritable(file.fileno())
    for name in ("output", "missing", "missing/file", "output/file/inner"):
        with pytest.raises(OSError, match=r"not a file|No such file|Not a directory"):
            folder.open_file(name)


def test_a_folder_is_opened_at_a_path_below_a_root_and_only_a_folder(ml: Path, outside: Path) -> None:
    (ml / "output" / "inner").mkdir()
    (ml / "output" / "inner" / "file").write_text("1")
    (ml / "output" / "led").symlink_to(outside)
    for below in ("output/inner", "./output//inner/", "output/./inner"):
        with ConfinedFolder.open(ml, below) as opened:
            assert opened.names() == ["file"]
    with ConfinedFolder.open(ml) as opened:
        assert (opened.names(), opened.open_folder("").names()) == (["output"], ["output"])
        assert not os.get_inheritable(opened.fileno())
    for root, below in ((ml, "output/inner/file"), (ml / "output/inner/file", ""), (ml, "output/led"), (ml, "none")):
        with pytest.raises(OSError, match=r"."):
            ConfinedFolder.open(root, below)
    with pytest.raises(OSError, match="leads out"):
        ConfinedFolder.open(ml, "../outside")


def test_status_is_that_of_a_link_itself(ml: Path, folder: ConfinedFolder, outside: Path) -> None:
    (ml / "output" / "file").write_text("1")
    (ml / "output" / "led").symlink_to(outside)
    asked = ("output", "output/file", "output/led", "output/none", "output/file/inner", "output/led/file", "")
    assert [folder.has_folder(path) for path in asked] == [True, False, False, False, False, False, True]
    assert [folder.has_file(path) for path in asked] == [False, True, False, False, False, False, False]
    assert [folder.status(path) is None for path in asked] == [False, False, False, True, True, True, False]
    with pytest.raises(OSError, match="leads out"):
        folder.status("../outside")
    with pytest.raises(OSError, match="name too long"):
        folder.status("n" * 300)


def test_a_file_is_given_a_name_a_link_is_made_and_both_are_unlinked(
    ml: Path, folder: ConfinedFolder, outside: Path
) -> None:
    folder.link_file(outside / "file", "output/same")
    folder.make_link("output/led", "../anywhere")
    assert (ml / "output" / "same").samefile(outside / "file")
    assert folder.read_link("output/led") == "../anywhere"
    (outside / "led").symlink_to(outside / "file")
    folder.link_file(outside / "led", "output/link")
    assert (ml / "output" / "link").is_symlink()
    for name in ("same", "led", "link"):
        folder.unlink(f"output/{name}")
    assert list((ml / "output").iterdir()) == []
    with pytest.raises(FileNotFoundError):
        folder.unlink("output/same")
    with pytest.raises(OSError, match="output"):
        folder.unlink("output")


def test_rights_are_set_to_files_and_folders_and_the_folder_itself(ml: Path, folder: ConfinedFolder) -> None:
    (ml / "output" / "file").write_text("1")
    for path, mode in (("output/file", 0o640), ("output", 0o711), ("", 0o750)):
        folder.set_mode(path, mode)
        assert mode_of(ml / path) == mode


def test_a_name_as_long_as_a_name_can_be_is_replaced(ml: Path, folder: ConfinedFolder) -> None:
    name = "n" * 255
    for body in (b"old", b"new"):
        folder.replace_file(name, body)
    assert (ml / name).read_bytes() == b"new"


def test_a_file_is_written_by_a_name_that_nobody_can_have_put_there_before(
    folder: ConfinedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, used = os.rename, []

    def record(new: str, name: str, **folders: int) -> None:
        used.append(new)
        rename(new, name, **folders)

    monkeypatch.setattr(os, "rename", record)
    for _ in range(5):
        folder.replace_file("word", b"1")
    assert len(set(used)) == 5
    assert all(re.fullmatch(r"\.word\.[0-9a-f]{16}", name) for name in used)


def test_a_file_that_cannot_be_written_to_its_end_leaves_what_was_there(
    ml: Path, folder: ConfinedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.replace_file("word", b"old")

    # No disk of this machine fails when it is told to, so that is played.
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="No space left"):
        folder.replace_file("word", b"new")
    assert (ml / "word").read_bytes() == b"old"
    assert sorted(path.name for path in ml.iterdir()) == ["output", "word"]


def test_a_walk_tells_the_way_to_each_entry_and_reads_it(ml: Path, folder: ConfinedFolder, outside: Path) -> None:
    (ml / "output" / "inner").mkdir()
    (ml / "output" / "inner" / "file").write_text("bytes")
    (ml / "led").symlink_to(outside / "file")
    found = {"/".join((*each.above, each.name)): each.read(limit_bytes=3) for each in folder.walk()}
    assert found == {"output": b"", "output/inner": b"", "output/inner/file": b"byt", "led": b""}
    assert stat.S_ISLNK(next(each for each in folder.walk() if each.name == "led").status.st_mode)


def test_a_walk_comes_to_all_of_a_folder_before_what_is_below_it(ml: Path, folder: ConfinedFolder) -> None:
    for place in ("a/x", "a/y", "b/z"):
        (ml / place).mkdir(parents=True)
    ways = [(*each.above, each.name) for each in folder.walk()]
    assert sorted(ways[:3]) == [("a",), ("b",), ("output",)]
    assert sorted(ways) == [("a",), ("a", "x"), ("a", "y"), ("b",), ("b", "z"), ("output",)]
    assert abs(ways.index(("a", "x")) - ways.index(("a", "y"))) == 1


def test_what_vanishes_or_turns_into_something_else_is_passed_over(
    ml: Path, folder: ConfinedFolder, outside: Path
) -> None:
    for name in ("gone", "linked", "stays"):
        (ml / name / f"in-{name}").mkdir(parents=True)
    seen: list[str] = []
    for entry in folder.walk():
        if not seen:
            (ml / "gone").rename(outside / "gone")
            (ml / "linked").rename(outside / "linked")
            (ml / "linked").symlink_to(outside / "linked")
        seen.append(entry.name)
    assert "in-stays" in seen
    assert not {"in-gone", "in-linked"} & set(seen)


def removing(path: str) -> Callable[[ConfinedFolder], str]:
    def remove(folder: ConfinedFolder) -> str:
        folder.remove(path)
        return " ".join(sorted(folder.names()))

    return remove


def test_an_ordinary_user_walks_past_what_is_closed_and_removes_it(ml: Path) -> None:
    (ml / "closed" / "inner").mkdir(parents=True)
    (ml / "open" / "inner").mkdir(parents=True)
    (ml / "closed").chmod(0)
    walked = as_ordinary_user(ml, lambda folder: " ".join(sorted({each.name for each in folder.walk()})))
    assert walked == "closed inner open output"
    assert mode_of(ml / "closed") == 0
    assert as_ordinary_user(ml, removing("closed")) == "open output"


def test_an_ordinary_user_walks_past_names_that_are_told_and_closed(ml: Path) -> None:
    (ml / "listed").mkdir()
    (ml / "listed" / "file").touch()
    (ml / "listed").chmod(0o400)
    (ml / "output" / "file").write_bytes(b"bytes")

    def look(folder: ConfinedFolder) -> str:
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only their number counts
        names = sorted({"/".join((*each.above, each.name)) for each in folder.walk()})
        return " ".join([*names, str(len(os.listdir("/proc/self/fd")) - before)])  # noqa: PTH208

    assert as_ordinary_user(ml, look) == "listed output output/file 0"


def test_what_is_closed_while_it_is_walked_through_is_passed_over(ml: Path) -> None:
    (ml / "file").touch()

    def look(folder: ConfinedFolder) -> str:
        seen = 0
        for _ in folder.walk():
            seen += 1
            os.fchmod(folder.fileno(), 0o400)
        return str(seen)

    assert as_ordinary_user(ml, look) == "1"


def test_an_ordinary_user_removes_a_tree_that_was_closed_at_every_depth(ml: Path) -> None:
    (ml / "tree" / "a" / "b").mkdir(parents=True)
    (ml / "tree" / "a" / "b" / "file").write_text("1")
    for place, mode in (("tree/a/b", 0o500), ("tree/a", 0o100), ("tree", 0o400)):
        (ml / place).chmod(mode)
    assert as_ordinary_user(ml, removing("tree")) == "output"


@needs_root
def test_what_another_user_closed_stays_closed_to_an_ordinary_one(ml: Path) -> None:
    (ml / "closed").mkdir(0)
    (ml / "file").touch(0)

    def look(folder: ConfinedFolder) -> str:
        return f"{folder.read('closed/file', limit_bytes=9)!r} {folder.read('file', limit_bytes=9)!r}"

    assert as_ordinary_user(ml, look, owns_it=False) == "None None"
    assert [mode_of(ml / name) for name in ("closed", "file")] == [0, 0]


@needs_root
def test_what_another_user_left_open_is_read_though_its_rights_cannot_be_changed(ml: Path) -> None:
    (ml / "shared").mkdir()
    (ml / "shared" / "file").write_text("1")
    (ml / "shared" / "file").chmod(0o044)
    (ml / "shared").chmod(0o055)
    assert as_ordinary_user(ml, lambda folder: str(read(folder, "shared/file")), owns_it=False) == "1"
    assert [mode_of(ml / name) for name in ("shared", "shared/file")] == [0o055, 0o044]


def test_what_is_opened_up_is_open_once(ml: Path) -> None:
    (ml / "closed").mkdir()
    (ml / "closed" / "file").write_text("1")
    (ml / "closed" / "file").chmod(0)
    (ml / "closed").chmod(0)

    def look(folder: ConfinedFolder) -> str:
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only their number counts
        said = read(folder, "closed/file")
        return f"{said} {len(os.listdir('/proc/self/fd')) - before}"  # noqa: PTH208

    assert as_ordinary_user(ml, look) == "1 0"


def test_errors_carry_their_number_and_the_path(ml: Path, folder: ConfinedFolder) -> None:
    (ml / "link").symlink_to("output")
    refused: list[tuple[Operation, int, str]] = [
        (lambda folder: folder.open_file("output"), errno.EINVAL, "output"),
        (lambda folder: folder.set_mode("link", 0o700), errno.ELOOP, "link"),
        (lambda folder: folder.open_folder("../up"), errno.EXDEV, "../up"),
    ]
    for operation, number, path in refused:
        with pytest.raises(OSError, match=r".") as raised:
            operation(folder)
        assert (raised.value.errno, raised.value.filename) == (number, path)


def test_the_size_of_a_tree_is_that_of_its_files(ml: Path, outside: Path) -> None:
    assert tree_size(ml) == tree_size(ml / "missing") == tree_size(ml / "missing" / "more") == 0
    (ml / "output" / "one").write_bytes(b"x" * 10)
    (ml / "output" / "inner").mkdir()
    (ml / "output" / "inner" / "two").write_bytes(b"x" * 5)
    (ml / "output" / "link").symlink_to(outside / "file")
    assert tree_size(ml) == 15


def test_nothing_happens_when_nothing_is_there_to_be_removed(ml: Path, folder: ConfinedFolder, tmp_path: Path) -> None:
    folder.remove("missing")
    folder.remove("missing/more")
    remove_tree(tmp_path / "missing" / "more")
    (ml / "file").write_text("1")
    folder.remove("file")
    assert [path.name for path in ml.iterdir()] == ["output"]
    with pytest.raises(OSError, match=r"."):
        folder.remove("../outside")


def test_every_descriptor_is_given_back_also_when_something_fails(ml: Path, folder: ConfinedFolder) -> None:
    (ml / "file").write_text("1")
    (ml / "output" / "inner").mkdir()
    failing: list[Operation] = [
        lambda folder: folder.open_file("output"),
        lambda folder: folder.open_folder("output/inner/none"),
        lambda folder: folder.open_folder("output/inner/none/more"),
        lambda folder: folder.make_folder("output/inner/new/../x"),
        lambda folder: folder.make_folder("output/inner/more/" + "n" * 300),
        lambda folder: folder.create_file("output/inner"),
        lambda folder: folder.replace_file("output/inner", b""),
        lambda folder: folder.set_mode("output/none", 0o700),
        lambda folder: ConfinedFolder.open(ml, "output/none"),
        lambda folder: ConfinedFolder.open(ml, "file"),
        lambda folder: folder.unlink("output/inner"),
    ]
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only their number counts
    for operation in failing:
        with pytest.raises(OSError, match=r"."):
            operation(folder)
    assert next(iter(folder.walk())).name in ("file", "output")
    with ConfinedFolder.open(ml, "output/inner"):
        pass
    assert folder.read("file", limit_bytes=5) == b"1"
    assert folder.status("output/inner") is not None
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208

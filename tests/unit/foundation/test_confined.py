"""What is done in a tree that a program wrote never leads out of it, whatever the program left or changes meanwhile."""

import ctypes
import os
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


def test_of_a_huge_file_only_what_is_asked_is_read(ml: Path, folder: ConfinedFolder) -> None:
    with (ml / "huge").open("wb") as file:
        file.truncate(1 << 40)
    assert folder.read("huge", limit_bytes=10, offset=(1 << 40) - 5) == bytes(5)


def test_what_is_not_there_is_nothing(ml: Path, folder: ConfinedFolder) -> None:
    assert read(folder) is None
    (ml / "output").rmdir()
    assert read(folder) is None
    assert folder.status("output/failure") is None


def test_a_file_that_is_a_link_is_nothing(ml: Path, folder: ConfinedFolder, outside: Path) -> None:
    (ml / "output" / "failure").symlink_to(outside / "file")
    assert read(folder) is None
    assert not folder.has_file("output/failure")


def test_what_is_no_file_is_not_even_opened(ml: Path, folder: ConfinedFolder) -> None:
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

    with pytest.raises(OSError, match="moved"):
        look()
    assert "file" not in seen  # of the folder that ".." led to


def test_what_is_removed_is_all_of_it_and_nothing_that_it_links_to(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard.foundation.confined._MOST_NAMES", 3)
    tree = tmp_path / "tree"
    for number in range(10):
        (tree / f"folder-{number}" / "inner").mkdir(parents=True)
        (tree / f"folder-{number}" / "file").touch(mode=0o000)
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


def test_what_its_owner_closed_is_opened_up_but_no_file_that_has_another_name(ml: Path, outside: Path) -> None:
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


def test_a_folder_that_is_only_read_stays_read_only(ml: Path) -> None:
    (ml / "fixed").mkdir()
    (ml / "fixed" / "file").write_text("1")
    (ml / "fixed").chmod(0o555)
    assert as_ordinary_user(ml, lambda folder: str(folder.read("fixed/file", limit_bytes=10))) == "b'1'"
    assert stat.S_IMODE((ml / "fixed").stat().st_mode) == 0o555


def as_ordinary_user(ml: Path, work: Callable[[ConfinedFolder], str]) -> str:
    """What is said by a process without root's rights, which owns the tree."""
    for path in (ml, *ml.rglob("*")) if os.geteuid() == 0 else ():
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


def test_a_socket_lies_deeper_than_an_address_can_be_long(ml: Path, folder: ConfinedFolder) -> None:
    deep = "/".join(["x" * 100] * 5)
    folder.make_folder(deep).close()
    (ml / deep / "told").write_text("in its place")
    with socket.socket(socket.AF_UNIX) as listener:
        folder.bind_socket(listener, f"{deep}/told", mode=0o600)
        found = (ml / deep / "told").stat()
    assert stat.S_ISSOCK(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o600


def test_a_link_is_told_and_not_followed(ml: Path, folder: ConfinedFolder, outside: Path) -> None:
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
def test_what_took_the_place_of_a_socket_is_neither_opened_up_nor_given_away(
    ml: Path, folder: ConfinedFolder, outside: Path, kind: str
) -> None:
    swaps = {
        "file": lambda place: place.hardlink_to(outside / "file"),
        "link": lambda place: place.symlink_to(outside / "file"),
    }
    before = state_of(outside)
    with SwappingSocket(ml / "told", swaps[kind]) as listener, pytest.raises(OSError, match="not the socket"):
        folder.bind_socket(listener, "told", owner=os.geteuid(), mode=0o666)
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
    list(folder.walk())
    folder.make_folder("own/deep/new").close()
    folder.set_mode("own/deep", 0o700)
    with suppress(OSError):
        folder.set_mode("led", 0o700)
    folder.remove("own")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208

"""How the code of a yard comes to a node."""

import io
import os
import subprocess
import sys
import sysconfig
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.unit.disk_recorder import DiskRecorder, power_cuts
from trainyard.engines.ray import node_code
from trainyard.engines.ray.node_code import LIBRARIES, NodeRefused, SentCode, own_folder, use_code

_CONTENT = b"# of the yard\n"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass
class Archives:
    """Where the archives of a yard are fetched from."""

    fetched: list[str] = field(default_factory=list)

    def fetch(self, name: Any) -> bytes:
        self.fetched.append(name)
        return archive(f"{name}/__init__.py")


@pytest.fixture
def archives() -> Archives:
    return Archives()


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def sent(digest: str = "one", **changes: Any) -> SentCode:
    libraries = {"nothing-anyone-has": "lacking", "pytest": "pytest"}
    return SentCode(digest, PYTHON, sysconfig.get_platform(), "code", libraries)._replace(**changes)


def test_code_is_unpacked_once_and_can_be_imported(tmp_path: Path, archives: Archives) -> None:
    for _ in range(2):
        use_code(tmp_path, sent(), fetch=archives.fetch)

    assert sys.path[0] == str(tmp_path / "one")
    assert (tmp_path / "one" / "code" / "__init__.py").exists()
    assert archives.fetched.count("code") == 1


def test_a_power_cut_leaves_whole_code_or_none(tmp_path: Path, archives: Archives) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    recorder = DiskRecorder(disk)

    recorder.run(lambda: use_code(disk, sent(), fetch=archives.fetch))

    for call, left in power_cuts(recorder, tmp_path):
        assert not (left / "one").exists() or (left / "one" / "code" / "__init__.py").read_bytes() == _CONTENT, call


def test_only_libraries_that_the_node_lacks_are_fetched(tmp_path: Path, archives: Archives) -> None:
    use_code(tmp_path, sent(), fetch=archives.fetch)

    assert archives.fetched == ["code", "lacking"]
    assert [path.name for path in (tmp_path / "one" / LIBRARIES).iterdir()] == ["lacking"]
    assert sys.path[-1] == str(tmp_path / "one" / LIBRARIES)


def test_a_half_unpacked_copy_is_unpacked_again(tmp_path: Path, archives: Archives) -> None:
    (tmp_path / ".one.new" / "half").mkdir(parents=True)

    use_code(tmp_path, sent(), fetch=archives.fetch)

    assert not (tmp_path / "one" / "half").exists()


def test_another_python_is_refused_with_both_versions(tmp_path: Path, archives: Archives) -> None:
    with pytest.raises(NodeRefused, match=rf"Python {PYTHON}, and the yard on 2\.7"):
        use_code(tmp_path, sent(python="2.7"), fetch=archives.fetch)


def test_libraries_for_another_platform_are_refused(tmp_path: Path, archives: Archives) -> None:
    with pytest.raises(NodeRefused, match=r"lacks nothing-anyone-has.*for abacus"):
        use_code(tmp_path, sent(platform="abacus"), fetch=archives.fetch)


def test_code_that_a_process_runs_from_stays_until_that_ends(tmp_path: Path, archives: Archives) -> None:
    program = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), fcntl.LOCK_SH)\n"
    program += "print(flush=True); input()"
    (tmp_path / "old").mkdir()
    user = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "old.lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with user:
        assert user.stdout is not None
        user.stdout.readline()
        use_code(tmp_path, sent(), fetch=archives.fetch)
        assert (tmp_path / "old").exists()

    use_code(tmp_path, sent("two"), fetch=archives.fetch)

    assert not (tmp_path / "old").exists()
    assert (tmp_path / "one").exists()  # which this process runs from


def test_several_processes_at_once_find_the_code_whole(tmp_path: Path) -> None:
    program = f"""
import io, sys, tarfile
from pathlib import Path
sys.path.insert(0, {str(Path(node_code.__file__).parent)!r})
from node_code import SentCode, use_code
def fetch(name):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for number in range(200):
            archive.addfile(tarfile.TarInfo(f"code/{{number}}.py"))
    return data.getvalue()
use_code(Path(sys.argv[1]), SentCode("one", {PYTHON!r}, "", "code", {{}}), fetch=fetch)
print(len(list(Path(sys.argv[1], "one", "code").iterdir())))
"""
    command = [sys.executable, "-I", "-S", "-c", program, str(tmp_path)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]

    assert [each.communicate()[0] for each in started] == ["200\n"] * 4


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_folder(tmp_path / "mine") == tmp_path / "mine"
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr("os.getuid", lambda: 4711)  # which no test may become

    with pytest.raises(NodeRefused, match="belongs to another user"):
        own_folder(tmp_path / "mine")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what belongs to somebody else")
def test_a_link_that_another_user_left_is_refused(tmp_path: Path) -> None:
    """It may lead to a folder of ours in which he may write, and lay his code out there before."""
    (tmp_path / "link").symlink_to("/tmp")
    os.lchown(tmp_path / "link", 54_342, 54_342)

    with pytest.raises(NodeRefused, match="belongs to another user"):
        own_folder(tmp_path / "link")


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_a_folder_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(mode)

    with pytest.raises(NodeRefused, match="other users can write to"):
        own_folder(tmp_path / "shared")


def archive(*names: str) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as opened:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(_CONTENT)
            opened.addfile(member, io.BytesIO(_CONTENT))
    return data.getvalue()

import grp
import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainyard.instance.warm.trust import Untrusted, _is_private, examine_environment

OTHER = 54_333


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment as pip leaves it, of the Python that runs this."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-I", "-m", "venv", "--without-pip", str(folder)], check=True)
    package = packages(folder) / "framework"
    package.mkdir()
    for name in ("__init__.py", "fast.so", "data.bin"):
        (package / name).touch()
    return folder


def packages(environment: Path) -> Path:
    return next(environment.glob("lib/python*/site-packages"))


def python(environment: Path) -> Path:
    return environment / "bin" / "python"


def test_an_environment_of_this_user_is_trusted_with_all_that_it_imports_from(environment: Path) -> None:
    trees = examine_environment(python(environment))
    assert str(packages(environment).parent) in trees
    assert str(Path(os.__file__).parent.resolve()) in trees


@pytest.mark.parametrize(
    "place",
    [
        "lib/python3/site-packages/framework/__init__.py",
        "lib/python3/site-packages/framework/fast.so",
        "pyvenv.cfg",
        "bin",
    ],
)
def test_what_everybody_can_write_is_not_trusted(environment: Path, place: str) -> None:
    path = environment / place.replace("lib/python3/site-packages", str(packages(environment).relative_to(environment)))
    path.chmod(path.stat().st_mode | 0o002)
    with pytest.raises(Untrusted, match=f"other than its owner can change {path}"):
        examine_environment(python(environment))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to a group that it is not in")
@pytest.mark.parametrize(
    "choose",
    [
        lambda environment: packages(environment) / "framework" / "__init__.py",
        lambda environment: packages(environment) / "framework",
        lambda environment: environment / "pyvenv.cfg",
        lambda environment: environment.parent,
    ],
    ids=["module", "package", "settings", "folder around it"],
)
def test_what_an_unknown_group_can_write_is_not_trusted(environment: Path, choose: Callable[[Path], Path]) -> None:
    path = choose(environment)
    os.chown(path, -1, OTHER)
    path.chmod(path.stat().st_mode & ~0o020)
    assert examine_environment(python(environment))
    path.chmod(path.stat().st_mode | 0o020)
    with pytest.raises(Untrusted, match=f"other than its owner can change {path}"):
        examine_environment(python(environment))


def test_what_is_never_executed_need_not_be_trusted(environment: Path) -> None:
    (packages(environment) / "framework" / "data.bin").chmod(0o666)
    assert examine_environment(python(environment))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize(
    "choose",
    [
        lambda environment: packages(environment) / "framework" / "__init__.py",
        lambda environment: packages(environment) / "framework",
        lambda environment: environment,
        lambda environment: environment.parent,
        python,
    ],
    ids=["module", "package", "environment", "folder around it", "interpreter"],
)
def test_what_belongs_to_another_user_is_not_trusted(environment: Path, choose: Callable[[Path], Path]) -> None:
    os.chown(choose(environment), OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(Untrusted, match=f"belongs to user {OTHER}"):
        examine_environment(python(environment))


def test_folders_that_a_pth_file_names_are_examined_too(environment: Path, tmp_path: Path) -> None:
    source = tmp_path / "checkout"
    source.mkdir()
    (packages(environment) / "editable.pth").write_text(f"# checkout\nimport os\n{source}\n{'x' * 5000}\n")
    assert str(source) in examine_environment(python(environment))
    (source / "module.py").touch()
    (source / "module.py").chmod(0o666)
    with pytest.raises(Untrusted, match=r"module\.py"):
        examine_environment(python(environment))


def test_a_link_is_followed_to_what_it_means(environment: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "module.py").touch()
    (packages(environment) / "linked").symlink_to(elsewhere)
    assert str(elsewhere) in examine_environment(python(environment))
    (elsewhere / "module.py").chmod(0o622)
    with pytest.raises(Untrusted, match=r"module\.py"):
        examine_environment(python(environment))


@pytest.fixture
def shared_group() -> Iterator[int]:
    """A group that has another user in it, as this machine knows it."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files to any group")
    for user in pwd.getpwall():
        if user.pw_uid != 0 and user.pw_gid != 0:
            _is_private.cache_clear()
            yield user.pw_gid
            _is_private.cache_clear()
            return
    pytest.skip("this machine knows no user but root")


@pytest.mark.parametrize("place", ["framework/__init__.py", "framework/fast.so", "framework", "."])
def test_what_a_group_of_others_can_write_is_not_trusted(environment: Path, shared_group: int, place: str) -> None:
    path = packages(environment) / place
    os.chown(path, 0, shared_group)
    assert examine_environment(python(environment)), "a group that may only read is harmless"
    path.chmod(path.stat().st_mode | 0o020)
    with pytest.raises(Untrusted, match="Users other than its owner can change"):
        examine_environment(python(environment))


def test_what_a_group_without_others_can_write_is_trusted(environment: Path) -> None:
    module = packages(environment) / "framework" / "__init__.py"
    os.chown(module, os.geteuid(), os.getegid())
    module.chmod(0o664)
    own = pwd.getpwuid(os.geteuid()).pw_name
    others = {user.pw_name for user in pwd.getpwall() if user.pw_gid == os.getegid()} | {*grp.getgrgid(os.getegid())[3]}
    if others <= {own, "root"}:
        assert examine_environment(python(environment))
    else:
        with pytest.raises(Untrusted):
            examine_environment(python(environment))

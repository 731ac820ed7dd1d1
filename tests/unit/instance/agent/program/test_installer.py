"""The installer of a job's sandbox, with the real uv and the real pip."""

import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.instance.agent.wheels import make_wheel, package_files
from trainyard.instance.agent.program import installation, installer
from trainyard.instance.agent.program.installation import find_uv

INSTALLER = Path(installer.__file__)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "wheels").mkdir()
    return tmp_path / "code"


@pytest.fixture(params=["uv", "pip"])
def tool(request: pytest.FixtureRequest) -> Sequence[str]:
    if request.param == "pip":
        return ()
    uv = find_uv()
    assert uv is not None, "uv comes with the package"
    return ("--uv", str(uv))


def install(
    code: Path, requirements: str | None, *options: str, python: str = sys.executable, **variables: str
) -> subprocess.CompletedProcess[str]:
    root = code.parent
    words = [python, "-I", str(INSTALLER), "--overlay", str(root / "overlay"), "--cache", str(root / "cache"), *options]
    if requirements is not None:
        (code / "requirements.txt").write_text(requirements)
        words += ["--requirements", str(code / "requirements.txt")]
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(root),
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(root / "wheels"),
    }
    run = subprocess.run(
        words, cwd=code, env=environment | variables, text=True, stdout=-1, stderr=subprocess.STDOUT, check=False
    )
    return run


def python(code: Path, program: str) -> str:
    run = subprocess.run(
        [code.parent / "overlay/bin/python", "-c", program], capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def installed(code: Path) -> list[str]:
    packages = next((code.parent / "overlay").glob("lib/python*/site-packages"))
    return sorted(path.name for path in packages.glob("*.dist-info"))


def environment_with(folder: Path, wheel: Path) -> str:
    """The Python of another environment, which has this package and pip."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (packages / "more.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    return str(folder / "bin" / "python")


def test_new_and_earlier_packages_are_both_importable(code: Path, tool: Sequence[str]) -> None:
    make_wheel(code.parent / "wheels", "yardtoy", "1.5", needs="pytest")
    done = install(code, "yardtoy==1.5\npytest\n", *tool)
    assert done.returncode == 0, done.stdout
    assert python(code, "import yardtoy; print(yardtoy.version)") == "1.5"
    assert python(code, "import pytest; print(pytest.__file__)") == pytest.__file__
    assert installed(code) == ["yardtoy-1.5.dist-info"]


def test_present_packages_are_not_installed_again(code: Path, tool: Sequence[str]) -> None:
    done = install(code, "pytest>=1\niniconfig\n", *tool)
    assert done.returncode == 0, done.stdout
    assert installed(code) == []


def test_a_package_of_the_overlay_wins_over_that_below(code: Path, tool: Sequence[str]) -> None:
    make_wheel(code.parent / "wheels", "iniconfig", "99.0")
    done = install(code, "iniconfig>=99\n", *tool)
    assert done.returncode == 0, done.stdout
    assert python(code, "import iniconfig; print(iniconfig.version)") == "99.0"
    assert python(code, "import importlib.metadata as m; print(m.version('iniconfig'))") == "99.0"
    assert installed(code) == ["iniconfig-99.0.dist-info"]


def test_installed_packages_are_compiled_because_nothing_can_be_added_later(code: Path, tool: Sequence[str]) -> None:
    make_wheel(code.parent / "wheels", "yardtoy", "1.5")
    install(code, "yardtoy\n", *tool)
    assert list((code.parent / "overlay").glob("lib/python*/site-packages/__pycache__/yardtoy.*.pyc"))


def test_a_requirement_that_does_not_exist_fails_with_the_message_of_pip(code: Path, tool: Sequence[str]) -> None:
    done = install(code, "no-such-package-of-the-yard==1.0\n", *tool)
    assert done.returncode == 1
    assert "No matching distribution found for no-such-package-of-the-yard==1.0" in done.stdout


@pytest.mark.parametrize(
    ("line", "asked"), [("torch==1.0", "torch==1.0"), ("torch<2", "torch<2"), ("vision", "torch==1.0")]
)
def test_a_framework_is_never_replaced_and_both_versions_are_named(
    code: Path, tool: Sequence[str], line: str, asked: str
) -> None:
    wheels = code.parent / "wheels"
    for version in ("1.0", "2.0"):
        make_wheel(wheels, "torch", version)
    make_wheel(wheels, "vision", "3.0", needs="torch==1.0")
    base = environment_with(code.parent / "base", wheels / "torch-2.0-py3-none-any.whl")
    done = install(code, f"{line}\n", *tool, python=base)
    assert done.returncode == installer.CONFLICT == installation.CONFLICT
    last = done.stdout.splitlines()[-1]
    if tool:  # pip words the conflict in its own way
        assert f"asks for {asked}," in last
    assert "the environment of this job has torch 2.0, which jobs do not replace" in last
    assert "`trainyard images map IMAGE /path/to/python`" in last
    assert installed(code) == []


def test_a_framework_that_satisfies_is_kept(code: Path, tool: Sequence[str]) -> None:
    wheels = code.parent / "wheels"
    for version in ("2.0", "2.1"):
        make_wheel(wheels, "torch", version)
    make_wheel(wheels, "vision", "3.0", needs="torch>=1.0")
    base = environment_with(code.parent / "base", wheels / "torch-2.0-py3-none-any.whl")
    done = install(code, "vision\ntorch>=2\n", *tool, python=base)
    assert done.returncode == 0, done.stdout
    assert installed(code) == ["vision-3.0.dist-info"]


def test_code_that_is_a_package_is_installed_with_what_it_needs(code: Path, tool: Sequence[str]) -> None:
    make_wheel(code.parent / "wheels", "yardtoy", "1.5")
    for name, text in package_files(needs="yardtoy").items():
        (code / name).parent.mkdir(exist_ok=True)
        (code / name).write_text(text)
    done = install(code, None, *tool, "--package", str(code), "--refresh")
    assert done.returncode == 0, done.stdout
    assert installed(code) == ["yardcode-1.0.dist-info", "yardtoy-1.5.dist-info"]


def test_changed_code_is_built_again(code: Path, tool: Sequence[str]) -> None:
    for value in ("one", "two"):
        for name, text in {**package_files(), "yardcode/__init__.py": f"value = {value!r}\n"}.items():
            (code / name).parent.mkdir(exist_ok=True)
            (code / name).write_text(text)
        install(code, None, *tool, "--package", str(code), "--refresh")
        assert python(code, "import yardcode; print(yardcode.value)") == value


def test_where_uv_cannot_run_pip_installs(code: Path) -> None:
    make_wheel(code.parent / "wheels", "yardtoy", "1.5")
    done = install(code, "yardtoy\n", "--uv", "/nowhere/uv")
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("[trainyard] uv cannot run here")
    assert installed(code) == ["yardtoy-1.5.dist-info"]


def test_without_large_packages_there_is_no_file_of_constraints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installer, "KEPT", ("yardtoy-of-nobody",))
    assert installer.constraint_options(tmp_path) == []
    assert list(tmp_path.iterdir()) == []

    monkeypatch.setattr(installer, "KEPT", ("pytest",))
    assert installer.constraint_options(tmp_path) == ["--constraint", str(tmp_path / "constraints.txt")]
    assert (tmp_path / "constraints.txt").read_text() == f"pytest=={pytest.__version__}\n"


def test_settings_of_pip_are_passed_to_uv() -> None:
    told = {"index-url": "https://a/simple", "extra-index-url": "https://b https://c", "no-index": "no", "pre": "yes"}
    told |= {"find-links": "/w", "trusted-host": "b", "cert": "/ca.pem", "quiet": "1"}
    words = " ".join(installer.uv_options(told, {}))
    for part in (
        "--index-strategy unsafe-best-match",
        "--default-index https://a/simple",
        "--index https://b --index https://c",
        "--find-links /w",
        "--allow-insecure-host b",
        "--cert /ca.pem",
        "--prerelease allow",
    ):
        assert part in words
    assert "--no-index" not in words
    assert "quiet" not in words
    assert installer.uv_options({"no-index": "1"}, {})[-1] == "--no-index"


def test_settings_of_uv_win_over_those_of_pip_where_packages_are_looked_for() -> None:
    told = {"index-url": "https://a/simple", "cert": "/ca.pem"}
    assert installer.uv_options(told, {"UV_DEFAULT_INDEX": "https://b/simple"}) == ["--cert", "/ca.pem"]


def test_settings_of_pip_come_from_its_file_and_its_variables(tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nindex_url = https://a/simple\ntimeout = 9\n[install]\nfind-links = /w\n[list]\nx = 1\n")
    found = installer.pip_options({"PIP_CONFIG_FILE": str(file), "PIP_INDEX_URL": "https://b/simple", "PATH": "/bin"})
    assert found["index-url"] == "https://b/simple"
    assert found["find-links"] == "/w"
    assert "x" not in found
    file.write_text("not a configuration")
    assert installer.pip_options({"PIP_CONFIG_FILE": str(file)}) == {"config-file": str(file)}

import re
import subprocess
from pathlib import Path

import pytest

from trainyard.instance.agent.program.writable_environment import WritableEnvironment
from trainyard.instance.sandbox.contract import Bind


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A virtual environment with two names of Python and a pip."""
    prefix = tmp_path / "environment"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib/python3.11/site-packages").mkdir(parents=True)
    (prefix / "pyvenv.cfg").write_text("home = /usr/bin\n")
    for name in ("python3.11", "pip"):
        (prefix / "bin" / name).touch(0o755)
    (prefix / "bin/python").symlink_to("python3.11")
    return prefix / "bin/python"


def test_names_that_the_environment_lacks_lead_to_its_python(python: Path) -> None:
    commands = WritableEnvironment(str(python), python).commands
    assert set(commands) - {"which"} == {"sudo", "python3", "pip3"}
    assert commands["pip3"] == f'#!/bin/sh\nexec {python} -m pip "$@"\n'


def test_an_environment_installed_for_the_job_gets_its_own_pip_and_not_that_of_the_image(python: Path) -> None:
    installed = Bind(python.parent.parent, "/opt/ml/.trainyard/environment")
    environment = WritableEnvironment("/opt/ml/.trainyard/environment/bin/python", python, [installed])
    assert environment.commands["pip"].endswith('exec /opt/ml/.trainyard/environment/bin/python -m pip "$@"\n')
    (copy,) = environment.copies(Path("/changes"), [])
    assert (copy.source, copy.target, copy.is_optional) == (installed.source, installed.target, True)


def test_uv_comes_from_the_yard_unless_the_environment_has_one(python: Path, tmp_path: Path) -> None:
    uv = tmp_path / "uv"
    environment = WritableEnvironment(str(python), python, uv=uv)
    assert environment.binds == [Bind(uv, "/run/trainyard/uv")]
    (python.parent / "uv").touch(0o755)
    assert environment.binds == []
    assert f"exec {python.parent}/uv " in environment.commands["uv"]


def test_the_environment_of_an_image_is_active_if_it_is_virtual(python: Path) -> None:
    prefix = python.parent.parent
    environment = WritableEnvironment(str(python), python, uv=prefix / "uv")
    assert environment.variables["VIRTUAL_ENV"] == str(prefix)
    assert f" packages={prefix}/lib/python3.11/site-packages\n" in environment.commands["uv"]
    (prefix / "pyvenv.cfg").unlink()
    assert "VIRTUAL_ENV" not in WritableEnvironment(str(python), python).variables


class UvCall:
    """Calls the script for uv in a folder, with programs that print how they are called."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.folder = folder
        self.prefix = python.parent.parent
        self.python = self.base = python
        self.uv: Path | None = None
        self.packages = str(self.prefix / "lib/python3.11/site-packages")
        told = '#!/bin/sh\necho "$0" "$@" / "$VIRTUAL_ENV" / "$UV_PYTHON" / "$UV_SYSTEM_PYTHON"\n'
        for name in ("python3.11", "uv"):
            (python.parent / name).write_text(told)
            (python.parent / name).chmod(0o755)

    def __call__(self, *words: str, **variables: str) -> str:
        environment = WritableEnvironment(str(self.python), self.base, uv=self.uv)
        script = self.folder / "script"
        script.write_text(re.sub(r" packages=.*", f" packages={self.packages}", environment.commands["uv"], count=1))
        active = {name: environment.variables.get(name, "") for name in ("VIRTUAL_ENV",)}
        run = subprocess.run(
            ["/bin/sh", str(script), *words],
            env={"PATH": "/usr/bin:/bin", **active, **variables},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=True,
        )
        return run.stdout.replace(str(self.prefix), "ENV").strip()


@pytest.fixture
def call_uv(python: Path, tmp_path: Path) -> UvCall:
    return UvCall(python, tmp_path)


@pytest.mark.parametrize("is_virtual", [True, False])
def test_uv_works_on_the_python_of_the_job(call_uv: UvCall, *, is_virtual: bool) -> None:
    if not is_virtual:
        (call_uv.prefix / "pyvenv.cfg").unlink()
    active = "ENV" if is_virtual else ""
    own = "ENV/bin/python /"
    assert call_uv("pip", "install", "a b") == f"ENV/bin/uv pip install a b / {active} / {own}"
    assert call_uv("-q", "pip", "install", "--system", "a") == f"ENV/bin/uv -q pip install a /  / {own}"
    assert call_uv("pip", "install", "a", UV_SYSTEM_PYTHON="1") == f"ENV/bin/uv pip install a /  / {own}"
    assert call_uv("pip", "install", "a", UV_SYSTEM_PYTHON="false").startswith("ENV/bin/uv pip install a / ")
    prefix = str(call_uv.prefix)
    for named in (
        ["--python", f"{prefix}/bin/python"],
        ["-p", f"{prefix}/bin/python3.11"],
        [f"--python={prefix}/bin/python3"],
    ):
        assert call_uv("pip", "install", *named, "a b") == f"ENV/bin/uv pip install a b /  / {own}"
    assert call_uv("run", "tool", "--system").startswith("ENV/bin/uv run tool --system / ")
    assert "ENV/bin/uv pip list --python 3.12 /" in call_uv("pip", "list", "--python", "3.12")


def test_uv_prefers_an_environment_that_the_script_made(call_uv: UvCall) -> None:
    assert call_uv("pip", "install", "a", VIRTUAL_ENV="/made") == "ENV/bin/uv pip install a / /made /  /"
    (call_uv.folder / ".venv").mkdir()
    assert call_uv("pip", "install", "a") == "ENV/bin/uv pip install a /  /  /"
    assert call_uv("pip", "install", "--system", "a") == "ENV/bin/uv pip install a /  / ENV/bin/python /"


def test_in_an_environment_on_top_of_the_images_pip_installs_for_uv_because_it_sees_both(call_uv: UvCall) -> None:
    call_uv.base = call_uv.folder / "image" / "bin" / "python"
    call_uv.uv = call_uv.prefix / "bin" / "uv"
    assert call_uv("pip", "install", "--system", "-U", "a b").startswith("ENV/bin/python -m pip install -U a b /")


def test_where_the_environment_cannot_be_changed_pip_installs_for_uv(call_uv: UvCall) -> None:
    # Root may change every folder that exists.
    call_uv.packages = "/absent"
    assert call_uv("-q", "pip", "install", "--system", "-U", "a b").startswith("ENV/bin/python -m pip install -U a b /")
    own = ["--python", str(call_uv.python)]
    assert call_uv("pip", "install", *own, "a").startswith("ENV/bin/python -m pip install a /")
    assert call_uv("pip", "install", "-p", "/v", "a").startswith("ENV/bin/uv pip install -p /v a /")
    assert call_uv("pip", "install", "--target", "/t", "a").startswith("ENV/bin/uv pip install --target /t a /")
    assert call_uv("pip", "list").startswith("ENV/bin/uv pip list /")


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["echo", "-n", "one"], "one"),
        (["-E", "-H", "-u", "root", "echo", "one"], "one\n"),
        (["-nu", "root", "--preserve-env=HOME", "--", "echo", "-u"], "-u\n"),
        (["MARK=1", "sh", "-c", "echo $MARK"], "1\n"),
        (["-v"], ""),
    ],
)
def test_sudo_runs_its_arguments(python: Path, tmp_path: Path, words: list[str], output: str) -> None:
    sudo = tmp_path / "sudo"
    sudo.write_text(WritableEnvironment(str(python), python).commands["sudo"])
    run = subprocess.run(["/bin/sh", str(sudo), *words], capture_output=True, text=True, check=True)
    assert run.stdout == output


def test_files_of_the_environment_that_only_their_owner_may_read_are_found(python: Path) -> None:
    prefix = python.parent.parent
    (prefix / "pip.conf").touch(0o600)
    (prefix / "public").touch(0o644)
    (prefix / "keys").mkdir(0o700)
    (prefix / "dangling").symlink_to("nowhere")
    found = WritableEnvironment(str(python), python).unreadable_entries()
    assert sorted(path.name for path in found) == ["keys", "pip.conf"]

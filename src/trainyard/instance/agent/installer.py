"""Installs what a job needs into an environment laid over that of its Python: `python -I installer.py --overlay …`.

This file is copied into the sandbox and runs there, by the Python of the job, which may be another than the yard's and
sees nothing of Trainyard. uv installs, and where it cannot, pip does.

uv knows nothing of an environment below another. So it is lent the metadata of what is installed there: it keeps what
satisfies the requirements, and what it has to replace it installs above. What is still lent at the end is taken back.
"""

from __future__ import annotations

import argparse
import configparser
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import venv
from collections import deque
from pathlib import Path

# What must not be installed a second time: it is large, and two of it in one program do not work.
KEPT = ("torch", "tensorflow", "tensorflow-cpu", "jax", "jaxlib")

CONFLICT = 3  # the exit code when one of these is wanted in another version
_LENT = "lent by the environment below\n"

# Options of pip, and those that tell uv the same. Where to look is left to uv's own settings if it has any.
_WHERE = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "no-index": "--no-index",
}
_HOW = {
    "trusted-host": "--allow-insecure-host",
    "constraint": "--constraint",
    "cert": "--cert",
    "no-binary": "--no-binary",
    "only-binary": "--only-binary",
}
_SETTINGS_OF_UV = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_OFFLINE")
_ON = ("1", "true", "yes", "on")

_UV = {
    "UV_LINK_MODE": "copy",  # what is kept must not share files with a cache that later installations write
    "UV_COMPILE_BYTECODE": "1",  # nothing can be added to an environment that is kept
    "UV_NO_PROGRESS": "1",
    "UV_PYTHON_DOWNLOADS": "never",
}
_LAST_LINES = 100


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    wanted = [*(["--requirement", options.requirements] if options.requirements else []), *options.package]
    status = install_with_uv(options, wanted) if options.uv else None
    return install_with_pip(options, wanted) if status is None else status


def install_with_uv(options: argparse.Namespace, wanted: list[str]) -> int | None:
    """The exit code; None when pip should try, which reads some things that uv does not."""
    overlay = Path(options.overlay)
    packages = make_overlay(overlay)
    lent = lend_metadata(packages)
    command = [options.uv, "pip", "install", "--python", str(overlay / "bin" / "python")]
    command += ["--constraint", str(write_constraints(overlay)), *(["--refresh"] if options.refresh else []), *wanted]
    command += ["--offline"] if options.offline else []
    command += uv_options(pip_options(dict(os.environ)), dict(os.environ))
    try:
        status, said = _run(command, {**_UV, **os.environ, "UV_CACHE_DIR": options.cache})
    except OSError as error:
        _say(f"uv cannot run here ({error}), so pip installs.")
        return None
    take_back(lent)
    if status == 0:
        return 0
    clashes = [pin for pin in pins() if pin in said]
    if clashes:
        _say(conflict(clashes[0], said))
        return CONFLICT
    _say("uv cannot install this, so pip tries.")
    return None


def install_with_pip(options: argparse.Namespace, wanted: list[str]) -> int:
    """Install what the environment below does not have already, which pip sees by itself."""
    overlay = Path(options.overlay)
    make_overlay(overlay)
    python = str(overlay / "bin" / "python")
    if subprocess.call([python, "-c", "import pip"], stderr=subprocess.DEVNULL):
        _say(f"{sys.executable} has no pip, so nothing more can be tried.")
        return 1
    command = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--no-cache-dir"]
    command += ["--progress-bar", "off", *(["--retries", "0"] if options.offline else [])]
    status, said = _run([*command, "--constraint", str(write_constraints(overlay)), *wanted], dict(os.environ))
    clashes = [pin for pin in pins() if status and pin in said]
    if clashes:
        _say(conflict(clashes[0], said))
        return CONFLICT
    return status


def make_overlay(overlay: Path) -> Path:
    """Make an environment that sees the packages of this one behind its own; the folder of its packages."""
    venv.create(overlay, system_site_packages=True, with_pip=False, symlinks=True, clear=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = overlay / "lib" / version / "site-packages"
    # A virtual environment below is no system environment, so it has to be named.
    below = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    lines = [f"import site; site.addsitedir({path!r})\n" for path in below]
    (packages / "environment-below.pth").write_text("".join(lines))
    return packages


def lend_metadata(packages: Path) -> list[Path]:
    """Let everything that is installed below look as if it were installed here; what has to be taken back."""
    lent: dict[str, Path] = {}
    for distribution in importlib.metadata.distributions():
        name = _normal(distribution.metadata["Name"] or "")
        if not name or name in lent:  # the first one found is the one that is imported
            continue
        folder = lent[name] = packages / f"{name.replace('-', '_')}-{distribution.version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(_metadata(distribution), "utf-8")
        (folder / "INSTALLER").write_text(_LENT)
        files = ("METADATA", "INSTALLER", "RECORD")
        (folder / "RECORD").write_text("".join(f"{folder.name}/{each},,\n" for each in files))
    return list(lent.values())


def take_back(lent: list[Path]) -> None:
    """Remove the metadata that is still that of the environment below, and what uv left of it."""
    for folder in lent:
        installer = folder / "INSTALLER"
        if folder.exists() and (not installer.exists() or installer.read_text() == _LENT):
            shutil.rmtree(folder)


def write_constraints(overlay: Path) -> Path:
    constraints = overlay / "constraints.txt"
    constraints.write_text("".join(f"{line}\n" for line in pins()))
    return constraints


def pins() -> list[str]:
    """Constraints that keep the large packages as they are."""
    found = []
    for name in KEPT:
        try:
            found.append(f"{name}=={importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def conflict(pin: str, said: str) -> str:
    """What to say when one of the large packages is wanted in another version than the one that is there."""
    name, _, version = pin.partition("==")
    asked = re.findall(rf"(?<![\w.-]){re.escape(name)}(?:==|[<>~!]=?)[^\s,;()]*[^\s,;().]", said)
    others = [each for each in dict.fromkeys(asked) if each != pin]
    wanted = f"asks for {others[0]}" if others else f"does not allow {name} {version}"
    return (
        f"This {wanted}, but the environment of this job has {name} {version}, which jobs do not replace. Loosen the "
        f"requirement, or let the image stand for an environment with another {name}: "
        "`trainyard images map IMAGE /path/to/python`."
    )


def uv_options(told: dict[str, str], environment: dict[str, str]) -> list[str]:
    """How uv is told what pip was told."""
    has_settings = any(name in environment for name in _SETTINGS_OF_UV)
    # pip takes the best version that any of its indexes has.
    found = [] if has_settings else ["--index-strategy", "unsafe-best-match"]
    for option, value in sorted(told.items()):
        if option in _WHERE and not has_settings:
            found += _words(_WHERE[option], value)
        elif option in _HOW:
            found += _words(_HOW[option], value)
        elif option == "pre" and value.lower() in _ON:
            found += ["--prerelease", "allow"]
    return found


def pip_options(environment: dict[str, str]) -> dict[str, str]:
    """What pip would take from its files and from its variables, which win."""
    found: dict[str, str] = {}
    for file in _pip_files(environment):
        parser = configparser.RawConfigParser()
        try:
            parser.read(file, "utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError):
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                found.update({name.replace("_", "-"): value for name, value in parser.items(section)})
    for name, value in environment.items():
        if name.startswith("PIP_"):
            found[name[4:].lower().replace("_", "-")] = value
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="installer.py")
    parser.add_argument("--overlay", required=True, help="where the environment is made")
    parser.add_argument("--requirements", help="a file that lists packages")
    parser.add_argument("--package", action="append", default=[], help="a folder that is a package")
    parser.add_argument("--uv", help="the program; without it pip installs")
    parser.add_argument("--cache", help="where uv keeps what it downloads")
    parser.add_argument("--offline", action="store_true", help="there is no network to wait for")
    parser.add_argument("--refresh", action="store_true", help="trust nothing that was built from files before")
    return parser


def _pip_files(environment: dict[str, str]) -> list[str]:
    """In the order of pip: those of the machine, of the user, of the environment; or the one that is named."""
    named = environment.get("PIP_CONFIG_FILE")
    if named:
        return [] if named == os.devnull else [named]
    home = environment.get("HOME", "/")
    return ["/etc/xdg/pip/pip.conf", "/etc/pip.conf", f"{home}/.config/pip/pip.conf", f"{sys.prefix}/pip.conf"]


def _words(option: str, value: str) -> list[str]:
    if option == "--no-index":
        return [option] if value.lower() in _ON else []
    return [word for each in value.split() for word in (option, each)]


def _metadata(distribution: importlib.metadata.Distribution) -> str:
    """As much of it as a resolver needs; packages installed long ago have it in other files."""
    lines = ["Metadata-Version: 2.1", f"Name: {distribution.metadata['Name']}", f"Version: {distribution.version}"]
    lines += [f"Provides-Extra: {extra}" for extra in distribution.metadata.get_all("Provides-Extra") or ()]
    lines += [f"Requires-Dist: {each}" for each in distribution.requires or ()]
    return "".join(f"{line}\n" for line in lines)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _run(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Run a program with its output shown as it comes; its exit code and what it said last."""
    said: deque[str] = deque(maxlen=_LAST_LINES)
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace"
    )
    assert process.stdout is not None
    for line in process.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        said.append(line)
    return process.wait(), "".join(said)


def _say(text: str) -> None:
    sys.stdout.write(f"[trainyard] {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Installs what a job needs into an environment on top of its Python's: `python -I installer.py --overlay …`.

This file is copied into the sandbox and run there by the Python of the job, which may differ from the yard's and cannot
import Trainyard. uv installs the packages; if it cannot, pip does.

uv does not support an environment on top of another. So the metadata of the base environment is copied into the overlay
first: uv keeps what satisfies the requirements, and installs what it must replace into the overlay. The copies that are
left at the end are removed.
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

# These must not be installed a second time: they are large, and two of them in one program do not work.
KEPT = ("torch", "tensorflow", "tensorflow-cpu", "jax", "jaxlib")

# The exit code when a requirement asks for another version of one of these.
CONFLICT = 3
# Marks metadata that was copied from the base environment.
_COPIED = "copied from the base environment\n"

# Options of pip and what they are called in uv. Those for indexes are ignored if uv has settings of its own.
_INDEX_OPTIONS = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "no-index": "--no-index",
}
_OTHER_OPTIONS = {
    "trusted-host": "--allow-insecure-host",
    "constraint": "--constraint",
    "cert": "--cert",
    "no-binary": "--no-binary",
    "only-binary": "--only-binary",
}
_UV_INDEX_VARIABLES = (
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_OFFLINE",
)
_TRUE = ("1", "true", "yes", "on")

_UV_DEFAULTS = {
    # A cached environment must not share files with uv's cache, which later installations write to.
    "UV_LINK_MODE": "copy",
    # A cached environment is read-only, so bytecode cannot be added later.
    "UV_COMPILE_BYTECODE": "1",
    "UV_NO_PROGRESS": "1",
    "UV_PYTHON_DOWNLOADS": "never",
}
# Of the installer's output, to find conflicts in.
_LAST_LINES = 100


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    packages = [*(["--requirement", options.requirements] if options.requirements else []), *options.package]
    status = install_with_uv(options, packages) if options.uv else None
    return install_with_pip(options, packages) if status is None else status


def install_with_uv(options: argparse.Namespace, packages: list[str]) -> int | None:
    """Install with uv and return the exit code; None when pip should try, which accepts more than uv does."""
    overlay = Path(options.overlay)
    copies = copy_metadata(make_overlay(overlay))
    command = [options.uv, "pip", "install", "--python", str(overlay / "bin" / "python")]
    command += [*constraint_options(overlay), *(["--refresh"] if options.refresh else []), *packages]
    command += ["--offline"] if options.offline else []
    command += uv_options(pip_options(dict(os.environ)), dict(os.environ))
    try:
        status, output = _run(command, {**_UV_DEFAULTS, **os.environ, "UV_CACHE_DIR": options.cache})
    except OSError as error:
        _print(f"uv cannot run here ({error}), so pip installs.")
        return None
    remove_metadata(copies)
    if status == 0:
        return 0
    conflicts = [pin for pin in pins() if pin in output]
    if conflicts:
        _print(conflict_message(conflicts[0], output))
        return CONFLICT
    _print("uv cannot install this, so pip tries.")
    return None


def install_with_pip(options: argparse.Namespace, packages: list[str]) -> int:
    """Install with pip, which sees by itself what the base environment has, and return the exit code."""
    overlay = Path(options.overlay)
    make_overlay(overlay)
    python = str(overlay / "bin" / "python")
    if subprocess.call([python, "-c", "import pip"], stderr=subprocess.DEVNULL):
        _print(f"{sys.executable} has no pip, so nothing more can be tried.")
        return 1
    command = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--no-cache-dir"]
    command += ["--progress-bar", "off", *(["--retries", "0"] if options.offline else [])]
    status, output = _run([*command, *constraint_options(overlay), *packages], dict(os.environ))
    conflicts = [pin for pin in pins() if status and pin in output]
    if conflicts:
        _print(conflict_message(conflicts[0], output))
        return CONFLICT
    return status


def make_overlay(overlay: Path) -> Path:
    """Create an environment that sees the packages of this one after its own. Return its site-packages folder."""
    venv.create(overlay, system_site_packages=True, with_pip=False, symlinks=True, clear=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = overlay / "lib" / version / "site-packages"
    # A base that is itself a virtual environment is not a system environment, so it must be added by path.
    below = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    lines = [f"import site; site.addsitedir({path!r})\n" for path in below]
    (packages / "environment-below.pth").write_text("".join(lines))
    return packages


def copy_metadata(packages: Path) -> list[Path]:
    """Make everything in the base environment look installed in the overlay. Return the copies to remove later."""
    copies: dict[str, Path] = {}
    for distribution in importlib.metadata.distributions():
        name = _normal(distribution.metadata["Name"] or "")
        # The first one found is the one that is imported.
        if not name or name in copies:
            continue
        folder = copies[name] = packages / f"{name.replace('-', '_')}-{distribution.version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(_metadata(distribution), "utf-8")
        (folder / "INSTALLER").write_text(_COPIED)
        files = ("METADATA", "INSTALLER", "RECORD")
        (folder / "RECORD").write_text("".join(f"{folder.name}/{each},,\n" for each in files))
    return list(copies.values())


def remove_metadata(copies: list[Path]) -> None:
    """Remove the copied metadata that uv has not replaced, and remains of what it has."""
    for folder in copies:
        installer = folder / "INSTALLER"
        if folder.exists() and (not installer.exists() or installer.read_text() == _COPIED):
            shutil.rmtree(folder)


def constraint_options(overlay: Path) -> list[str]:
    """Return the options for a file with the pins. Without pins there is none: uv warns about an empty file."""
    lines = pins()
    if not lines:
        return []
    constraints = overlay / "constraints.txt"
    constraints.write_text("".join(f"{line}\n" for line in lines))
    return ["--constraint", str(constraints)]


def pins() -> list[str]:
    """Constraints that keep the large packages at their versions."""
    constraints = []
    for name in KEPT:
        try:
            constraints.append(f"{name}=={importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return constraints


def conflict_message(pin: str, output: str) -> str:
    """The message for a requirement that asks for another version of one of the large packages."""
    name, _, version = pin.partition("==")
    asked = re.findall(rf"(?<![\w.-]){re.escape(name)}(?:==|[<>~!]=?)[^\s,;()]*[^\s,;().]", output)
    others = [each for each in dict.fromkeys(asked) if each != pin]
    request = f"asks for {others[0]}" if others else f"does not allow {name} {version}"
    return (
        f"This {request}, but the environment of this job has {name} {version}, which jobs do not replace. Loosen the "
        f"requirement, or map the image to an environment with another {name}: "
        "`trainyard images map IMAGE /path/to/python`."
    )


def uv_options(options: dict[str, str], environment: dict[str, str]) -> list[str]:
    """Translate options of pip into options of uv."""
    has_settings = any(name in environment for name in _UV_INDEX_VARIABLES)
    # pip takes the best version that any of its indexes has.
    words = [] if has_settings else ["--index-strategy", "unsafe-best-match"]
    for option, value in sorted(options.items()):
        if option in _INDEX_OPTIONS and not has_settings:
            words += _words(_INDEX_OPTIONS[option], value)
        elif option in _OTHER_OPTIONS:
            words += _words(_OTHER_OPTIONS[option], value)
        elif option == "pre" and value.lower() in _TRUE:
            words += ["--prerelease", "allow"]
    return words


def pip_options(environment: dict[str, str]) -> dict[str, str]:
    """Read the options of pip from its configuration files and its variables, which take precedence."""
    options: dict[str, str] = {}
    for file in _pip_files(environment):
        parser = configparser.RawConfigParser()
        try:
            parser.read(file, "utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError):
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                options.update({name.replace("_", "-"): value for name, value in parser.items(section)})
    for name, value in environment.items():
        if name.startswith("PIP_"):
            options[name[4:].lower().replace("_", "-")] = value
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="installer.py")
    parser.add_argument("--overlay", required=True, help="folder of the new environment")
    parser.add_argument("--requirements", help="requirements file to install")
    parser.add_argument("--package", action="append", default=[], help="folder of a package to install")
    parser.add_argument("--uv", help="path of uv; without it pip installs")
    parser.add_argument("--cache", help="folder of uv's cache")
    parser.add_argument("--offline", action="store_true", help="do not wait for a network")
    parser.add_argument("--refresh", action="store_true", help="do not use cached builds")
    return parser


def _pip_files(environment: dict[str, str]) -> list[str]:
    """The configuration files in pip's order: machine, user, environment; or the single one in PIP_CONFIG_FILE."""
    named = environment.get("PIP_CONFIG_FILE")
    if named:
        return [] if named == os.devnull else [named]
    home = environment.get("HOME", "/")
    return ["/etc/xdg/pip/pip.conf", "/etc/pip.conf", f"{home}/.config/pip/pip.conf", f"{sys.prefix}/pip.conf"]


def _words(option: str, value: str) -> list[str]:
    if option == "--no-index":
        return [option] if value.lower() in _TRUE else []
    return [word for each in value.split() for word in (option, each)]


def _metadata(distribution: importlib.metadata.Distribution) -> str:
    """The metadata that a resolver needs. Old packages have it in other files, so it is written anew."""
    lines = ["Metadata-Version: 2.1", f"Name: {distribution.metadata['Name']}", f"Version: {distribution.version}"]
    lines += [f"Provides-Extra: {extra}" for extra in distribution.metadata.get_all("Provides-Extra") or ()]
    lines += [f"Requires-Dist: {each}" for each in distribution.requires or ()]
    return "".join(f"{line}\n" for line in lines)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _run(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Run a program and print its output as it comes. Return its exit code and its last lines."""
    last_lines: deque[str] = deque(maxlen=_LAST_LINES)
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace"
    )
    assert process.stdout is not None
    for line in process.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        last_lines.append(line)
    return process.wait(), "".join(last_lines)


def _print(text: str) -> None:
    sys.stdout.write(f"[trainyard] {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

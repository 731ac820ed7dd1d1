"""`trainyard service`: start the yard with the machine, by systemd."""

import getpass
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from trainyard.cli.terminal.console import (
    CommandGroup,
    CommandWithExamples,
    command_line,
    environment,
    home_option,
    json_option,
    result_option,
    say,
    select_home,
)
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.cli.yard.systemd_unit import MARK, SystemdUnit

_SYSTEM_UNITS = Path("/etc/systemd/system")
# Exists while systemd is the init process.
_SYSTEMD = Path("/run/systemd/system")
_NAME = re.compile(r"[A-Za-z0-9:_.-]+")

F = TypeVar("F", bound=Callable[..., Any])


def _unit_options(function: F) -> F:
    """Add the options that select a unit."""
    for option in (
        click.option(
            "--system/--user",
            "is_system",
            default=None,
            help="A unit of the whole machine, or of this user. Default: of the machine for root, else of this user.",
        ),
        click.option(
            "--name",
            metavar="NAME",
            default="trainyard",
            show_default=True,
            help="Name of the unit, for several yards.",
        ),
        home_option,
    ):
        function = option(function)
    return function


@click.group(
    cls=CommandGroup,
    examples=(
        "trainyard service install            start the yard now and at every boot",
        "trainyard service install --print    show the unit only",
        "trainyard service status",
        "trainyard service uninstall",
    ),
)
def service() -> None:
    """Start the yard at every boot, with systemd. Jobs continue while the yard restarts."""


@service.command(
    cls=CommandWithExamples,
    examples=("trainyard service install", "trainyard service install --home /data/yard --name yard-data"),
)
@click.option("--print", "only_prints", is_flag=True, help="Print the unit, and change nothing.")
@_unit_options
@result_option("UnitName", "UnitFile")
def install(
    only_prints: bool, folder: Path | None, name: str, is_system: bool | None, as_json: JsonFields | None
) -> None:
    """Write a systemd unit for the yard, enable it, and start it.

    The unit uses the settings in settings.toml of the home folder, not the variables of this shell.
    """
    unit = _unit(folder, name, is_system)
    if only_prints:
        click.echo(unit.text, nl=False)
        return
    _require_systemd()
    path = _require_own_file(unit)
    _require_root(unit)
    home = select_home(folder)
    home.check()
    if (running := home.runtime()) is not None and not path.exists():
        raise Failure(
            f"A yard is already running on {home.root}, so the service could not start.",
            why=f"It is process {running.pid}.",
            next_step=command_line("down", home),
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(unit.text)
    _systemctl(unit, "daemon-reload")
    _systemctl(unit, "enable", "--now", unit.name)
    say(f"Wrote {path}, and started the yard; `trainyard service status` shows it.")
    ignored = sorted(variable for variable in environment() if variable.startswith("TRAINYARD_SERVER_"))
    if ignored:
        say(f"The service does not get {', '.join(ignored)} of this shell; `trainyard config set` writes settings.")
    if as_json:
        print_json(_unit_values(unit), as_json)
    if not unit.is_system:
        say(f"So that it also runs while you are logged out: sudo loginctl enable-linger {getpass.getuser()}")


@service.command(cls=CommandWithExamples, examples=("trainyard service uninstall",))
@_unit_options
@result_option("UnitName", "UnitFile")
def uninstall(folder: Path | None, name: str, is_system: bool | None, as_json: JsonFields | None) -> None:
    """Stop the service and remove its unit. The home folder stays; jobs continue until they end."""
    unit = _unit(folder, name, is_system)
    _require_systemd()
    path = _require_own_file(unit)
    if not path.exists():
        raise _not_installed(unit)
    _require_root(unit)
    _systemctl(unit, "disable", "--now", unit.name)
    path.unlink()
    _systemctl(unit, "daemon-reload")
    say(f"Stopped the service and removed {path}.")
    if as_json:
        print_json(_unit_values(unit), as_json)


@service.command(cls=CommandWithExamples, examples=("trainyard service status",))
@_unit_options
@json_option
def status(folder: Path | None, name: str, is_system: bool | None, as_json: JsonFields | None) -> int:
    """Show whether the service is installed and running. The exit code is 0 only if it is running."""
    unit = _unit(folder, name, is_system)
    _require_systemd()
    path = _unit_file(unit)
    if not path.exists():
        raise _not_installed(unit)
    states = {verb: _state(unit, verb) for verb in ("is-enabled", "is-active")}
    if as_json:
        values = {**_unit_values(unit), "Start": states["is-enabled"], "State": states["is-active"]}
        print_json(values, as_json)
    else:
        click.echo(f"unit      {path}")
        click.echo(f"start     {states['is-enabled']}")
        click.echo(f"state     {states['is-active']}")
    option = "" if unit.is_system else "--user "
    say(f"Its log: journalctl {option}-u {unit.name}")
    return ExitCode.OK if states["is-active"] == "active" else ExitCode.FAILED


def _unit(folder: Path | None, name: str, is_system: bool | None) -> SystemdUnit:
    if not _NAME.fullmatch(name):
        raise click.UsageError(f'"{name}" cannot be the name of a unit; use letters, digits, and :_.-')
    is_root = os.geteuid() == 0 if hasattr(os, "geteuid") else False
    return SystemdUnit(
        name, select_home(folder).root, Path(sys.executable), is_root if is_system is None else is_system
    )


def _unit_values(unit: SystemdUnit) -> dict[str, str]:
    return {"UnitName": unit.name, "UnitFile": str(_unit_file(unit))}


def _unit_file(unit: SystemdUnit) -> Path:
    if unit.is_system:
        return _SYSTEM_UNITS / f"{unit.name}.service"
    configuration = environment().get("XDG_CONFIG_HOME")
    folder = Path(configuration) if configuration else Path("~/.config").expanduser()
    return folder / "systemd" / "user" / f"{unit.name}.service"


def _require_systemd() -> None:
    if not _SYSTEMD.is_dir() or shutil.which("systemctl", path=environment().get("PATH")) is None:
        raise Failure(
            "systemd does not run on this machine, so there is no service.",
            why=f"{_SYSTEMD} or systemctl is missing, as in most containers.",
            next_step="trainyard up --detach, from whatever starts programs here; `trainyard service install --print` "
            "shows what the service would be",
        )


def _require_own_file(unit: SystemdUnit) -> Path:
    """Return the file of the unit. Raises a failure if somebody else wrote it."""
    path = _unit_file(unit)
    if path.exists() and not path.read_text(errors="replace").startswith(MARK):
        raise Failure(
            f"{path} was not written by `trainyard service`, so it was not changed.",
            next_step="trainyard service install --name NAME, with another name",
        )
    return path


def _require_root(unit: SystemdUnit) -> None:
    if unit.is_system and os.geteuid() != 0:
        raise Failure("Only root can change units of the machine.", next_step="sudo, or --user", code=ExitCode.AUTH)


def _not_installed(unit: SystemdUnit) -> Failure:
    return Failure(
        f"The service {unit.name} is not installed.",
        why=f"{_unit_file(unit)} does not exist.",
        next_step="trainyard service install",
        code=ExitCode.NOT_FOUND,
    )


def _systemctl(unit: SystemdUnit, *arguments: str) -> None:
    ended = _run(unit, *arguments)
    if ended.returncode:
        raise Failure(
            f"systemctl {' '.join(arguments)} failed.",
            why=ended.stderr.strip() or f"It exited with {ended.returncode}.",
            next_step=f"journalctl {'' if unit.is_system else '--user '}-u {unit.name}",
        )


def _state(unit: SystemdUnit, verb: str) -> str:
    """Return one word, such as `active`; the exit code of these commands says the same."""
    return _run(unit, verb, unit.name).stdout.strip() or "unknown"


def _run(unit: SystemdUnit, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = ["systemctl", *([] if unit.is_system else ["--user"]), *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

"""`trainyard doctor`: check the capabilities of this machine and the integrity of the home folder."""

import dataclasses
import importlib.metadata
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from trainyard.cli.terminal.console import (
    CommandWithExamples,
    environment,
    home_option,
    json_option,
    profile_option,
    select_home,
    select_target,
)
from trainyard.cli.terminal.failure import ExitCode
from trainyard.cli.terminal.json_output import JsonFields, pascal_case_keys, print_json
from trainyard.cli.yard.connect import certificates_folder
from trainyard.cli.yard.maintenance import maintain
from trainyard.cli.yard.overrides import find_overrides
from trainyard.engines.probe import probe_frameworks, probe_machine
from trainyard.foundation.errors import TrainyardError
from trainyard.foundation.extras import EXTRAS, install_command, missing_module
from trainyard.foundation.home import Home

_NAME_WIDTH = 19
_SDK_TRIAL = Path(__file__).with_name("sdk_trial.py")


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard doctor",
        "trainyard doctor --json",
        "trainyard doctor --thorough                      read every object, too",
        "trainyard doctor --sdk                           try a session of the sagemaker SDK",
        "trainyard doctor --sdk --python envs/sm/bin/python",
    ),
)
@home_option
@profile_option
@click.option("--thorough", is_flag=True, help="Also read every object and verify its checksum.")
@click.option("--sdk", is_flag=True, help="Also try a session of the sagemaker SDK, with the variables of this shell.")
@click.option(
    "--python",
    type=click.Path(exists=True, dir_okay=False),
    metavar="PATH",
    help="With --sdk: the Python that has the SDK. Default: python3 of this shell.",
)
@json_option
def doctor(folder: Path | None, thorough: bool, sdk: bool, python: str | None, as_json: JsonFields | None) -> int:
    """Check what this machine supports and whether the home folder is intact, and say what follows.

    It also lists the extras and the frameworks in the Python of the yard, and the variables of this shell that keep AWS
    clients from the yard. The exit code is 1 if the home folder is damaged, or if a step of --sdk fails. A capability
    that the machine lacks is not an error.
    """
    if python and not sdk:
        raise click.UsageError("--python is only for --sdk; add that, or leave it out.")
    home = select_home(folder)
    sections = {"This shell and AWS clients": _check_shell(folder)}
    # Yards run on Linux only.
    is_yard_machine = sys.platform == "linux"
    if is_yard_machine:
        sections = {
            "This machine": [dataclasses.asdict(capability) for capability in probe_machine(home.root)],
            f"The home folder {home.root}": _check_home(home, thorough=thorough),
            f"Frameworks for jobs in {sys.executable}": [dataclasses.asdict(each) for each in probe_frameworks()],
        } | sections
    sections[f"Extras in {sys.executable}"] = [_check_extra(name) for name in EXTRAS]
    if sdk:
        sections["A session of the sagemaker SDK"] = _try_sdk(folder, python or shutil.which("python3") or "python3")
    keys = (
        *(("machine", "home", "frameworks") if is_yard_machine else ()),
        "shell",
        "extras",
        *(("sdk",) if sdk else ()),
    )
    by_key = dict(zip(keys, sections.values(), strict=True))
    if as_json:
        print_json(pascal_case_keys(by_key), as_json, optional=("Machine", "Home", "Frameworks", "Sdk"))
    else:
        for title, rows in sections.items():
            _print(title, rows)
    failing = (row for key in ("home", "sdk") for row in by_key.get(key, ()) if not row["ok"])
    return ExitCode.FAILED if any(failing) else ExitCode.OK


def _check_extra(name: str) -> dict[str, Any]:
    extra, missing = EXTRAS[name], missing_module(name)
    if missing:
        return _row(name, ok=False, detail=f"{missing} is not installed", consequence=f"{install_command(name)}")
    found = ", ".join(f"{module} {_version(module)}" for module in extra.modules)
    return _row(name, ok=True, detail=found, consequence=f"{extra.purpose} is available.")


def _version(module: str) -> str:
    try:
        return importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        return "of an unknown version"


def _check_shell(folder: Path | None) -> Sequence[dict[str, Any]]:
    """Return what keeps AWS clients in this shell from the yard."""
    try:
        target = select_target(folder)
    except TrainyardError as error:
        return [_row("yard", ok=False, detail=error.message, consequence="There is nothing to connect to.")]
    overrides = [
        _row(each.name, ok=False, detail=each.consequence, consequence=each.remedy)
        for each in find_overrides(target, environment(), bundles=certificates_folder(folder))
    ]
    nothing = "No variable overrides what `trainyard connect` writes."
    return overrides or [_row("variables", ok=True, detail="none in the way", consequence=nothing)]


def _try_sdk(folder: Path | None, python: str) -> Sequence[dict[str, Any]]:
    """Run a session of the SDK with its own Python, and return its steps."""
    try:
        target = select_target(folder)
    except TrainyardError as error:
        return [_row("yard", ok=False, detail=error.message, consequence="trainyard up --detach")]
    run = subprocess.run(
        [python, str(_SDK_TRIAL), target.http, target.https],
        env=dict(environment()),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    steps: list[dict[str, Any]] = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    if steps and (run.returncode == 0 or not steps[-1]["ok"]):
        return steps
    last = run.stderr.strip().splitlines()[-1:] or [f"it exited with {run.returncode}"]
    return [*steps, _row("python", ok=False, detail=f"{python}: {last[0]}", consequence="--python PATH of the SDK")]


def _row(name: str, *, ok: bool, detail: str, consequence: str) -> dict[str, Any]:
    return {"name": name, "ok": ok, "detail": detail, "consequence": consequence}


def _check_home(home: Home, *, thorough: bool) -> Sequence[dict[str, Any]]:
    try:
        if home.check() is None:
            detail, consequence = "does not exist yet", "`trainyard up` creates it."
            return [{"name": "home folder", "ok": True, "detail": detail, "consequence": consequence}]
        checks: list[dict[str, Any]] = maintain("check", home, *(["--thorough"] if thorough else []))["checks"]
    except TrainyardError as error:
        return [{"name": "home folder", "ok": False, "detail": error.message, "consequence": "The yard cannot start."}]
    return checks


def _print(title: str, rows: Sequence[dict[str, Any]]) -> None:
    click.secho(title, bold=True)
    width = max([_NAME_WIDTH, *(len(row["name"]) for row in rows)]) + 1
    for row in rows:
        mark = click.style("yes", fg="green") if row["ok"] else click.style("no ", fg="yellow")
        click.echo(f"  {mark}  {row['name']:<{width}}{row['detail']}")
        if row["consequence"]:
            click.echo(f"       {'':<{width}}{click.style(row['consequence'], dim=True)}")

"""`trainyard status`: whether a yard runs, where, and what it has to give."""

import dataclasses
from pathlib import Path

import click

from trainyard.cli.console import Command, chosen_home, home_option, json_option, no_yard, print_json, say, size
from trainyard.cli.failure import ExitCode
from trainyard.engines.probe import Capacity, capacity
from trainyard.foundation.home import Runtime


@click.command(
    cls=Command,
    short_help="Show whether a yard runs, where, and what it has to give.",
    examples=(
        "trainyard status",
        "trainyard status --json | jq -r .http      the address alone",
        "trainyard status > /dev/null || trainyard up --detach",
    ),
)
@home_option
@json_option
def status(folder: Path | None, as_json: bool) -> int:
    """Show whether a yard runs; the exit code is 4 when none does."""
    home = chosen_home(folder)
    home.check()
    runtime = home.runtime()
    if runtime is None and not as_json:
        raise no_yard(home)
    if runtime is None:
        print_json({"running": False, "home": str(home.root)})
        return ExitCode.NOT_FOUND
    offered = capacity(home.root)
    if as_json:
        values = dataclasses.asdict(runtime)
        del values["started"]
        print_json({"running": True, **values, "capacity": dataclasses.asdict(offered)})
    else:
        _print(runtime, offered)
    return ExitCode.OK


def _print(runtime: Runtime, offered: Capacity) -> None:
    cores = f"{offered.cores:g} cores, {size(offered.memory_bytes)} memory, {offered.gpus} GPUs"
    rows = {
        "http": runtime.http,
        "https": runtime.https,
        "pid": str(runtime.pid),
        "home": runtime.home,
        "version": runtime.version,
        "capacity": f"{cores}, {size(offered.disk_free_bytes)} of disk free",
    }
    for name, value in rows.items():
        click.echo(f"{name:<10}{value}")
    say("\nA yard is running; `trainyard down` stops it.")

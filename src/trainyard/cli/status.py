"""`trainyard status`: whether a yard runs, where, and what it has to give."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from trainyard.cli.console import Command, chosen_home, home_option, json_option, no_yard, print_json, say, size
from trainyard.cli.failure import ExitCode
from trainyard.cli.jobs import plain
from trainyard.cli.node_view import node_lines
from trainyard.cli.yard_view import warm_text
from trainyard.connection import find_yard
from trainyard.engines.probe import Capacity, capacity
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.home import Home, Runtime


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
    offered, yard = capacity(home.root), ask_yard(home)
    if as_json:
        values = dataclasses.asdict(runtime)
        del values["started"]
        told = {"running": True, **values, "capacity": dataclasses.asdict(offered)}
        print_json(told | ({"yard": plain(yard)} if yard else {}))
    else:
        _print(runtime, offered, yard)
    return ExitCode.OK


def ask_yard(home: Home) -> Mapping[str, Any] | None:
    """What DescribeYard answers; None when the yard runs and does not answer."""
    client = find_yard(home).client()
    try:
        return client.call("trainyard", "DescribeYard")
    except Unavailable:
        return None
    finally:
        client.close()


def _elsewhere(yard: Mapping[str, Any]) -> str:
    """How many jobs run on which engines besides the first one."""
    counts = Counter(job["Engine"] for job in yard["RunningJobs"] if job["Engine"] != yard["Engine"])
    told = ", ".join(f"{count} on {name}" for name, count in sorted(counts.items()))
    return f" ({told})" if told else ""


def _storage_text(storage: Mapping[str, Any]) -> str:
    limit = f" of {size(storage['LimitBytes'])}" if storage.get("LimitBytes") is not None else ""
    told = f"{size(storage['UsedBytes'])}{limit} kept as objects, {size(storage['ReserveBytes'])} of disk in reserve"
    return f"{told}; THE DISK IS FULL, uploads are refused" if storage["ReserveIsTouched"] else told


def _print(runtime: Runtime, offered: Capacity, yard: Mapping[str, Any] | None) -> None:
    cores = f"{offered.cores:g} cores, {size(offered.memory_bytes)} memory, {offered.gpus} GPUs"
    rows = {
        "http": runtime.http,
        "https": runtime.https,
        "pid": str(runtime.pid),
        "home": runtime.home,
        "version": runtime.version,
        "capacity": f"{cores}, {size(offered.disk_free_bytes)} of disk free",
    }
    if yard:
        rows |= {
            "slots": f"{yard['SlotsInUse']} of {yard['Slots']} in use",
            "jobs": f"{len(yard['RunningJobs'])} run{_elsewhere(yard)}, {yard['QueuedJobs']} wait",
            "warm": warm_text(yard),
        }
    if yard and (storage := yard.get("Storage")):
        rows["storage"] = _storage_text(storage)
    for name, value in rows.items():
        click.echo(f"{name:<10}{value}")
    for line in node_lines(yard) if yard else ():
        click.echo(line)
    if yard:
        say("\nA yard is running; `trainyard top` watches it, `trainyard down` stops it.")
    else:
        say(f"\nA yard is running, but it does not answer; its log is {Home(Path(runtime.home)).server_log}.")

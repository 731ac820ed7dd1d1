"""`trainyard status`: whether a yard is running, its addresses and its resources."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.connection import find_yard
from trainyard.cli.jobs.lookup import to_json
from trainyard.cli.terminal.console import (
    CommandWithExamples,
    home_option,
    json_option,
    no_yard,
    print_json,
    say,
    select_home,
    size_text,
)
from trainyard.cli.terminal.failure import ExitCode
from trainyard.cli.yard.yard_text import node_lines, warm_text
from trainyard.engines.probe import MachineCapacity, measure_capacity
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.home import Home, Runtime


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard status",
        "trainyard status --json | jq -r .http      only the address",
        "trainyard status > /dev/null || trainyard up --detach",
    ),
)
@home_option
@json_option
def status(folder: Path | None, as_json: bool) -> int:
    """Show whether a yard is running, its addresses and its resources. The exit code is 4 if none is running."""
    home = select_home(folder)
    home.check()
    runtime = home.runtime()
    if runtime is None and not as_json:
        raise no_yard(home)
    if runtime is None:
        print_json({"running": False, "home": str(home.root)})
        return ExitCode.NOT_FOUND
    capacity, yard = measure_capacity(home.root), describe_yard(home)
    if as_json:
        values = dataclasses.asdict(runtime)
        del values["started"]
        state = {"running": True, **values, "capacity": dataclasses.asdict(capacity)}
        print_json(state | ({"yard": to_json(yard)} if yard else {}))
    else:
        _print(runtime, capacity, yard)
    return ExitCode.OK


def describe_yard(home: Home) -> Mapping[str, Any] | None:
    """Return the DescribeYard response; None if the yard does not answer."""
    client = find_yard(home).client()
    try:
        return client.call("trainyard", "DescribeYard")
    except Unavailable:
        return None
    finally:
        client.close()


def _other_engines_text(yard: Mapping[str, Any]) -> str:
    """Return how many jobs run on engines other than the default one."""
    counts = Counter(job["Engine"] for job in yard["RunningJobs"] if job["Engine"] != yard["Engine"])
    text = ", ".join(f"{count} on {name}" for name, count in sorted(counts.items()))
    return f" ({text})" if text else ""


def _storage_text(storage: Mapping[str, Any]) -> str:
    limit = f" of {size_text(storage['LimitBytes'])}" if storage.get("LimitBytes") is not None else ""
    text = f"{size_text(storage['UsedBytes'])}{limit} of objects, {size_text(storage['ReserveBytes'])} of disk reserved"
    return f"{text}; THE DISK IS FULL, uploads are rejected" if storage["ReserveIsTouched"] else text


def _print(runtime: Runtime, capacity: MachineCapacity, yard: Mapping[str, Any] | None) -> None:
    cores = f"{capacity.cores:g} cores, {size_text(capacity.memory_bytes)} memory, {capacity.gpus} GPUs"
    rows = {
        "http": runtime.http,
        "https": runtime.https,
        "pid": str(runtime.pid),
        "home": runtime.home,
        "version": runtime.version,
        "capacity": f"{cores}, {size_text(capacity.disk_free_bytes)} of disk free",
    }
    if yard:
        rows |= {
            "slots": f"{yard['SlotsInUse']} of {yard['Slots']} in use",
            "jobs": f"{len(yard['RunningJobs'])} running{_other_engines_text(yard)}, {yard['QueuedJobs']} waiting",
            "warm": warm_text(yard),
        }
    if yard and (storage := yard.get("Storage")):
        rows["storage"] = _storage_text(storage)
    for name, value in rows.items():
        click.echo(f"{name:<10}{value}")
    for line in node_lines(yard) if yard else ():
        click.echo(line)
    if yard:
        say("\nThe yard is running; `trainyard top` watches it, `trainyard down` stops it.")
    else:
        say(f"\nThe yard is running, but it does not answer; its log is {Home(Path(runtime.home)).server_log}.")

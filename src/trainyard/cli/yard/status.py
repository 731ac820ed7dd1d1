"""`trainyard status`: whether a yard is running, its addresses and its resources."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.connection import Access, find_yard
from trainyard.cli.jobs.lookup import find_remote_access, to_json, translate_failures
from trainyard.cli.terminal.blocks import print_blocks
from trainyard.cli.terminal.console import (
    CommandWithExamples,
    json_option,
    no_yard,
    say,
    select_home,
    size_text,
    yard_option,
)
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.json_output import JsonFields, pascal_case_keys, print_json
from trainyard.cli.yard.reachability import authority_fingerprint
from trainyard.cli.yard.yard_text import node_blocks, warm_text
from trainyard.engines.probe import MachineCapacity, measure_capacity
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.home import Home, Runtime

# Fields of --json without a yard that runs and answers.
_OPTIONAL_FIELDS = ("Endpoint", "Home", "Pid", "Http", "Https", "Reachable", "Version", "Capacity", "Yard")


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard status",
        "trainyard status --json | jq -r .Http      only the address",
        "trainyard status > /dev/null || trainyard up --detach",
    ),
)
@yard_option
@json_option
def status(folder: Path | None, as_json: JsonFields | None) -> int:
    """Show whether a yard is running, its addresses and its resources. The exit code is 4 if none is running."""
    remote = find_remote_access(folder)
    if remote is not None:
        return _show_remote(remote, as_json)
    home = select_home(folder)
    home.check()
    runtime = home.runtime()
    if runtime is None and as_json is None:
        raise no_yard(home)
    if runtime is None:
        assert as_json, "the other case has failed"
        print_json({"Running": False, "Home": str(home.root)}, as_json, optional=_OPTIONAL_FIELDS)
        return ExitCode.NOT_FOUND
    capacity, yard = measure_capacity(home.root), describe_yard(home)
    if as_json:
        values = dataclasses.asdict(runtime)
        # It would let whoever reads the output sign in.
        del values["sign_in"]
        del values["started"]
        state = {"running": True, **values, "capacity": dataclasses.asdict(capacity)}
        document = pascal_case_keys(state) | ({"Yard": to_json(yard)} if yard else {})
        print_json(document, as_json, optional=_OPTIONAL_FIELDS)
    else:
        _print(runtime, capacity, yard)
    return ExitCode.OK


def _show_remote(access: Access, as_json: JsonFields | None) -> int:
    """Show a yard of another machine, or of another user, of which only the API tells."""
    client = access.client()
    try:
        with translate_failures():
            yard = client.call("trainyard", "DescribeYard")
    except Unavailable as error:
        if as_json is None:
            raise Failure(f"No yard answers at {access.url}.", why=error.message, code=ExitCode.NOT_FOUND) from error
        print_json({"Running": False, "Endpoint": access.url}, as_json, optional=_OPTIONAL_FIELDS)
        return ExitCode.NOT_FOUND
    finally:
        client.close()
    if as_json:
        document = {"Running": True, "Endpoint": access.url, "Version": yard["Version"], "Yard": to_json(yard)}
        print_json(document, as_json, optional=_OPTIONAL_FIELDS)
        return ExitCode.OK
    _print_rows({"endpoint": access.url, "version": yard["Version"], **_use_rows(yard)})
    print_blocks(list(node_blocks(yard)))
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


def _use_rows(yard: Mapping[str, Any]) -> dict[str, str]:
    rows = {
        "slots": f"{yard['SlotsInUse']} of {yard['Slots']} in use",
        "jobs": f"{len(yard['RunningJobs'])} running{_other_engines_text(yard)}, {yard['QueuedJobs']} waiting",
        "warm": warm_text(yard),
    }
    storage = yard.get("Storage")
    return rows | ({"storage": _storage_text(storage)} if storage else {})


def _print_rows(rows: Mapping[str, str]) -> None:
    for name, value in rows.items():
        click.echo(f"{name:<10}{value}")


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
    if runtime.reachable:
        rows["log in"] = f"trainyard login {runtime.reachable}, on another machine"
    # Also for a yard on the loopback address: users reach it by ssh, and their login shows the fingerprint, too.
    rows["sha-256"] = f"{authority_fingerprint(Home(Path(runtime.home)))}, of the certificate authority"
    _print_rows(rows | (_use_rows(yard) if yard else {}))
    print_blocks(list(node_blocks(yard)) if yard else [])
    if yard:
        say("\nThe yard is running; `trainyard top` watches it, `trainyard down` stops it.")
    else:
        say(f"\nThe yard is running, but it does not answer; its log is {Home(Path(runtime.home)).server_log}.")

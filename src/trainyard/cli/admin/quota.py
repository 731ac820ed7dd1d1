"""`trainyard quota`: limit the instances and the storage of users."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from trainyard.cli.completion.values import complete_instance_types
from trainyard.cli.jobs.lookup import open_api, to_json
from trainyard.cli.terminal.console import (
    CommandGroup,
    CommandWithExamples,
    json_option,
    result_option,
    say,
    size_text,
    yard_option,
)
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.cli.terminal.tables import Column, Row, print_table

_UNITS = {"": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]IB)?B?", re.IGNORECASE)


class _SizeParameter(click.ParamType[int]):
    """A number of bytes with an optional unit."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = _SIZE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f'"{value}" is not a size; write 500MiB, 200GiB or 1.5TiB.', param, ctx)
        return int(float(match[1]) * _UNITS[(match[2] or "").upper()])


_COLUMNS = ("user", "type", "kind", Column("limit", "right"), Column("in use", "right"))
_STORAGE_COLUMNS = ("user", Column("storage", "right"), Column("in use", "right"))

_user = click.argument("user_name", metavar="USER")
_type = click.argument("instance_type", metavar="TYPE", shell_complete=complete_instance_types)
_spot = click.option("--spot", is_flag=True, help="For spot instances. Without it: for on-demand instances.")


@click.group(cls=CommandGroup)
def quota() -> None:
    """Limit how many instances users can have at the same time, and how much they can store. Default: no limit."""


@quota.command(
    cls=CommandWithExamples,
    examples=("trainyard quota ls", "trainyard quota ls --user anna", "trainyard quota ls --json"),
)
@click.option("--user", "user_name", metavar="USER", help="Only the quotas of one user.")
@yard_option
@json_option
def ls(user_name: str | None, folder: Path | None, as_json: JsonFields | None) -> None:
    """List the quotas and their use."""
    request = {"UserName": user_name} if user_name else {}
    with open_api(folder) as api:
        found = api.call("trainyard", "ListQuotas", **request)
    if as_json:
        print_json(to_json(found), as_json, items="Quotas")
        return
    limited = [each for each in found["StorageQuotas"] if each.get("LimitBytes") is not None]
    if not found["Quotas"] and not limited:
        say("There are no quotas; `trainyard quota set USER TYPE N` and `trainyard quota storage USER SIZE` set one.")
        return
    if found["Quotas"]:
        print_table(_COLUMNS, [_row(each) for each in found["Quotas"]])
    if limited:
        print_table(_STORAGE_COLUMNS, [_storage_row(each) for each in limited])


@quota.command(
    "set",
    cls=CommandWithExamples,
    examples=(
        "trainyard quota set anna ml.p3.2xlarge 2           at most two such instances for anna",
        "trainyard quota set '*' '*' 8                      at most eight instances of any type for each user",
        "trainyard quota set anna ml.p3.2xlarge 4 --spot",
    ),
)
@_user
@_type
@click.argument("limit", metavar="N", type=click.IntRange(min=0))
@_spot
@yard_option
@result_option("UserName", "InstanceType", "Kind", "Limit")
def set_quota(
    user_name: str, instance_type: str, limit: int, spot: bool, folder: Path | None, as_json: JsonFields | None
) -> None:
    """Limit USER to N instances of TYPE at the same time. As USER, '*' is each user; as TYPE, all types together.

    Running jobs continue.
    """
    key = _quota_key(user_name, instance_type, spot=spot)
    with open_api(folder) as api:
        api.call("trainyard", "PutQuota", **key, Limit=limit)
    if as_json:
        print_json({**key, "Limit": limit}, as_json)
        return
    say(f"Limited {_user_text(user_name)} to {limit} {_instances_text(key, limit)} at the same time.")


@quota.command(
    cls=CommandWithExamples, examples=("trainyard quota rm anna ml.p3.2xlarge", "trainyard quota rm '*' '*' --spot")
)
@_user
@_type
@_spot
@yard_option
@result_option("UserName", "InstanceType", "Kind")
def rm(user_name: str, instance_type: str, spot: bool, folder: Path | None, as_json: JsonFields | None) -> None:
    """Remove the quota of USER for TYPE."""
    key = _quota_key(user_name, instance_type, spot=spot)
    with open_api(folder) as api:
        api.call("trainyard", "DeleteQuota", **key)
    if as_json:
        print_json(key, as_json)
        return
    say(f"Removed the limit of {_user_text(user_name)} on {_instances_text(key)}.")


@quota.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard quota storage anna 200GiB       for the objects of anna",
        "trainyard quota storage '*' 50GiB         for each user without a limit of its own",
        "trainyard quota storage anna --remove",
    ),
)
@_user
@click.argument("limit_bytes", metavar="[SIZE]", type=_SizeParameter(), required=False)
@click.option("--remove", is_flag=True, help="Remove the limit.")
@yard_option
@result_option("UserName", "LimitBytes")
def storage(
    user_name: str, limit_bytes: int | None, remove: bool, folder: Path | None, as_json: JsonFields | None
) -> None:
    """Limit the objects of USER to SIZE. '*' is each user.

    Existing objects are kept. Parts of unfinished uploads count too. Each object or part counts as 4 KiB more than its
    size.
    """
    if (limit_bytes is None) is not remove:
        raise click.UsageError("Give a size, such as 200GiB, or --remove.")
    with open_api(folder) as api:
        if limit_bytes is None:
            api.call("trainyard", "DeleteStorageQuota", UserName=user_name)
        else:
            api.call("trainyard", "PutStorageQuota", UserName=user_name, LimitBytes=limit_bytes)
    if as_json:
        print_json({"UserName": user_name, "LimitBytes": limit_bytes}, as_json)
    elif limit_bytes is None:
        say(f"Removed the storage limit of {_user_text(user_name)}.")
    else:
        say(f"Limited the storage of {_user_text(user_name)} to {size_text(limit_bytes)}.")


def _quota_key(user_name: str, instance_type: str, *, spot: bool) -> dict[str, Any]:
    return {"UserName": user_name, "InstanceType": instance_type, "Kind": "spot" if spot else "on-demand"}


def _user_text(user_name: str) -> str:
    return "each user" if user_name == "*" else user_name


def _instances_text(key: dict[str, Any], count: int = 0) -> str:
    instances = "instance" if count == 1 else "instances"
    types = f"{instances} of any type" if key["InstanceType"] == "*" else f"{instances} of {key['InstanceType']}"
    return f"{key['Kind']} {types}"


def _row(quota: Mapping[str, Any]) -> Row:
    return quota["UserName"], quota["InstanceType"], quota["Kind"], str(quota["Limit"]), str(quota["Use"])


def _storage_row(quota: Mapping[str, Any]) -> Row:
    return quota["UserName"], size_text(quota["LimitBytes"]), size_text(quota["UsedBytes"])

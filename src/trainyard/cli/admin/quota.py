"""`trainyard quota`: limit the instances and the storage of users."""

import re
from pathlib import Path
from typing import Any

import click

from trainyard.cli.jobs.lookup import open_api, to_json
from trainyard.cli.terminal.console import CommandWithExamples, home_option, json_option, print_json, say, size_text

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


_user = click.argument("user_name", metavar="USER")
_type = click.argument("instance_type", metavar="TYPE")
_spot = click.option("--spot", is_flag=True, help="For spot instances. Without it: for on-demand instances.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def quota() -> None:
    """Limit how many instances users can have at the same time, and how much they can store. Default: no limit."""


@quota.command(
    cls=CommandWithExamples,
    examples=("trainyard quota ls", "trainyard quota ls --user anna", "trainyard quota ls --json"),
)
@click.option("--user", "user_name", metavar="USER", help="Only the quotas of one user.")
@home_option
@json_option
def ls(user_name: str | None, folder: Path | None, as_json: bool) -> None:
    """List the quotas and their use."""
    request = {"UserName": user_name} if user_name else {}
    with open_api(folder) as api:
        found = api.call("trainyard", "ListQuotas", **request)
    if as_json:
        print_json(to_json(found))
        return
    limited = [each for each in found["StorageQuotas"] if each.get("LimitBytes") is not None]
    if not found["Quotas"] and not limited:
        say("There are no quotas; `trainyard quota set USER TYPE N` and `trainyard quota storage USER SIZE` set one.")
        return
    for line in [*_table(found["Quotas"]), *_storage_table(limited)]:
        click.echo(line)


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
@home_option
def set_quota(user_name: str, instance_type: str, limit: int, spot: bool, folder: Path | None) -> None:
    """Limit USER to N instances of TYPE at the same time. As USER, '*' is each user; as TYPE, all types together.

    Running jobs continue.
    """
    key = _quota_key(user_name, instance_type, spot=spot)
    with open_api(folder) as api:
        api.call("trainyard", "PutQuota", **key, Limit=limit)
    say(f"Limited {_user_text(user_name)} to {limit} {_instances_text(key)} at the same time.")


@quota.command(
    cls=CommandWithExamples, examples=("trainyard quota rm anna ml.p3.2xlarge", "trainyard quota rm '*' '*' --spot")
)
@_user
@_type
@_spot
@home_option
def rm(user_name: str, instance_type: str, spot: bool, folder: Path | None) -> None:
    """Remove the quota of USER for TYPE."""
    key = _quota_key(user_name, instance_type, spot=spot)
    with open_api(folder) as api:
        api.call("trainyard", "DeleteQuota", **key)
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
@home_option
def storage(user_name: str, limit_bytes: int | None, remove: bool, folder: Path | None) -> None:
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
    if limit_bytes is None:
        say(f"Removed the storage limit of {_user_text(user_name)}.")
    else:
        say(f"Limited the storage of {_user_text(user_name)} to {size_text(limit_bytes)}.")


def _quota_key(user_name: str, instance_type: str, *, spot: bool) -> dict[str, Any]:
    return {"UserName": user_name, "InstanceType": instance_type, "Kind": "spot" if spot else "on-demand"}


def _user_text(user_name: str) -> str:
    return "each user" if user_name == "*" else user_name


def _instances_text(key: dict[str, Any]) -> str:
    types = "instances of any type" if key["InstanceType"] == "*" else f"instances of {key['InstanceType']}"
    return f"{key['Kind']} {types}"


def _storage_table(quotas: list[dict[str, Any]]) -> list[str]:
    if not quotas:
        return []
    names = max(len("user"), *(len(each["UserName"]) for each in quotas))
    rows = (
        f"{each['UserName']:<{names}}  {size_text(each['LimitBytes']):>10}  {size_text(each['UsedBytes']):>10}"
        for each in quotas
    )
    return [f"{'user':<{names}}  {'storage':>10}  {'in use':>10}", *rows]


def _table(quotas: list[dict[str, Any]]) -> list[str]:
    if not quotas:
        return []
    names = max(len("user"), *(len(each["UserName"]) for each in quotas))
    types = max(len("type"), *(len(each["InstanceType"]) for each in quotas))
    head = f"{'user':<{names}}  {'type':<{types}}  {'kind':<9}  {'limit':>6}  {'in use':>6}"
    rows = (
        f"{each['UserName']:<{names}}  {each['InstanceType']:<{types}}  {each['Kind']:<9}"
        f"  {each['Limit']:>6}  {each['Use']:>6}"
        for each in quotas
    )
    return [head, *rows]

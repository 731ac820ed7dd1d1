"""`trainyard quota`: how many instances users may have at once, and how much they may keep."""

import re
from pathlib import Path
from typing import Any

import click

from trainyard.cli.console import Command, home_option, json_option, print_json, say, size
from trainyard.cli.jobs import calls, plain

_UNITS = {"": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]IB)?B?", re.IGNORECASE)


class _Size(click.ParamType[int]):
    """A number of bytes, with a unit or without."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = _SIZE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f'"{value}" is not a size; write 500MiB, 200GiB or 1.5TiB.', param, ctx)
        return int(float(match[1]) * _UNITS[(match[2] or "").upper()])


_user = click.argument("user_name", metavar="USER")
_type = click.argument("instance_type", metavar="TYPE")
_spot = click.option("--spot", is_flag=True, help="Of instances that may be interrupted; without it, of all others.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def quota() -> None:
    """Say how many instances users may have at once, and how much they may keep; without a quota, there is no limit."""


@quota.command(
    cls=Command, examples=("trainyard quota ls", "trainyard quota ls --user anna", "trainyard quota ls --json")
)
@click.option("--user", "user_name", metavar="USER", help="Only what holds for one user.")
@home_option
@json_option
def ls(user_name: str | None, folder: Path | None, as_json: bool) -> None:
    """List the quotas, and how much of each is in use."""
    asked = {"UserName": user_name} if user_name else {}
    with calls(folder) as api:
        found = api.call("trainyard", "ListQuotas", **asked)
    if as_json:
        print_json(plain(found))
        return
    limited = [each for each in found["StorageQuotas"] if each.get("LimitBytes") is not None]
    if not found["Quotas"] and not limited:
        say("There is no quota; `trainyard quota set USER TYPE N` and `trainyard quota storage USER SIZE` set one.")
        return
    for line in [*_table(found["Quotas"]), *_storage_table(limited)]:
        click.echo(line)


@quota.command(
    "set",
    cls=Command,
    examples=(
        "trainyard quota set anna ml.p3.2xlarge 2           two such instances at once for anna",
        "trainyard quota set '*' '*' 8                      eight of any type for each user",
        "trainyard quota set anna ml.p3.2xlarge 4 --spot",
    ),
)
@_user
@_type
@click.argument("limit", metavar="N", type=click.IntRange(min=0))
@_spot
@home_option
def set_quota(user_name: str, instance_type: str, limit: int, spot: bool, folder: Path | None) -> None:
    """Let USER have at most N instances of TYPE at once. '*' is every user, each for itself, or all types together.

    Jobs that run already go on.
    """
    named = _named(user_name, instance_type, spot=spot)
    with calls(folder) as api:
        api.call("trainyard", "PutQuota", **named, Limit=limit)
    say(f"From now on {_whose(user_name)} may have {limit} {_of_what(named)} at once.")


@quota.command(cls=Command, examples=("trainyard quota rm anna ml.p3.2xlarge", "trainyard quota rm '*' '*' --spot"))
@_user
@_type
@_spot
@home_option
def rm(user_name: str, instance_type: str, spot: bool, folder: Path | None) -> None:
    """Take the quota of USER for TYPE away."""
    named = _named(user_name, instance_type, spot=spot)
    with calls(folder) as api:
        api.call("trainyard", "DeleteQuota", **named)
    say(f"The limit of {_whose(user_name)} on {_of_what(named)} is gone.")


@quota.command(
    cls=Command,
    examples=(
        "trainyard quota storage anna 200GiB       of objects that anna keeps",
        "trainyard quota storage '*' 50GiB         for each user without a limit of its own",
        "trainyard quota storage anna --remove",
    ),
)
@_user
@click.argument("limit_bytes", metavar="[SIZE]", type=_Size(), required=False)
@click.option("--remove", is_flag=True, help="Take the limit away.")
@home_option
def storage(user_name: str, limit_bytes: int | None, remove: bool, folder: Path | None) -> None:
    """Let USER keep at most SIZE in its buckets. '*' is every user, each for itself.

    What is kept already stays. Parts of unfinished uploads count too. Each object or part counts 4 KiB more than its
    bytes.
    """
    if (limit_bytes is None) is not remove:
        raise click.UsageError("Give a size, such as 200GiB, or --remove.")
    with calls(folder) as api:
        if limit_bytes is None:
            api.call("trainyard", "DeleteStorageQuota", UserName=user_name)
        else:
            api.call("trainyard", "PutStorageQuota", UserName=user_name, LimitBytes=limit_bytes)
    if limit_bytes is None:
        say(f"The limit of {_whose(user_name)} on storage is gone.")
    else:
        say(f"From now on {_whose(user_name)} may keep {size(limit_bytes)}.")


def _named(user_name: str, instance_type: str, *, spot: bool) -> dict[str, Any]:
    return {"UserName": user_name, "InstanceType": instance_type, "Kind": "spot" if spot else "on-demand"}


def _whose(user_name: str) -> str:
    return "every user" if user_name == "*" else user_name


def _of_what(named: dict[str, Any]) -> str:
    types = "instances of any type" if named["InstanceType"] == "*" else f"instances of {named['InstanceType']}"
    return f"{named['Kind']} {types}"


def _storage_table(quotas: list[dict[str, Any]]) -> list[str]:
    if not quotas:
        return []
    names = max(len("user"), *(len(each["UserName"]) for each in quotas))
    rows = (
        f"{each['UserName']:<{names}}  {size(each['LimitBytes']):>10}  {size(each['UsedBytes']):>10}" for each in quotas
    )
    return [f"{'user':<{names}}  {'may keep':>10}  {'keeps':>10}", *rows]


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

"""`trainyard quota`: how many instances users may have at once."""

from pathlib import Path
from typing import Any

import click

from trainyard.cli.console import Command, home_option, json_option, print_json, say
from trainyard.cli.jobs import calls, plain

_user = click.argument("user_name", metavar="USER")
_type = click.argument("instance_type", metavar="TYPE")
_spot = click.option("--spot", is_flag=True, help="Of instances that may be interrupted; without it, of all others.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def quota() -> None:
    """Say how many instances users may have at once; without a quota, any number."""


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
    if not found["Quotas"]:
        say("There is no quota; `trainyard quota set USER TYPE N` sets one.")
        return
    for line in _table(found["Quotas"]):
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


def _named(user_name: str, instance_type: str, *, spot: bool) -> dict[str, Any]:
    return {"UserName": user_name, "InstanceType": instance_type, "Kind": "spot" if spot else "on-demand"}


def _whose(user_name: str) -> str:
    return "every user" if user_name == "*" else user_name


def _of_what(named: dict[str, Any]) -> str:
    types = "instances of any type" if named["InstanceType"] == "*" else f"instances of {named['InstanceType']}"
    return f"{named['Kind']} {types}"


def _table(quotas: list[dict[str, Any]]) -> list[str]:
    names = max(len("user"), *(len(each["UserName"]) for each in quotas))
    types = max(len("type"), *(len(each["InstanceType"]) for each in quotas))
    head = f"{'user':<{names}}  {'type':<{types}}  {'kind':<9}  {'limit':>6}  {'in use':>6}"
    rows = (
        f"{each['UserName']:<{names}}  {each['InstanceType']:<{types}}  {each['Kind']:<9}"
        f"  {each['Limit']:>6}  {each['Use']:>6}"
        for each in quotas
    )
    return [head, *rows]

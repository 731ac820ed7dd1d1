"""`trainyard user`: who may call the yard. Each user has an account of its own and sees nothing of the others."""

import contextlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from trainyard.cli.console import Command, home_option, json_option, print_json, running_yard, say
from trainyard.cli.env import SYNTAX, exports
from trainyard.cli.failure import ExitCode, Failure
from trainyard.connection import Connection, KeyPair, client_environment
from trainyard.foundation.errors import TrainyardError

ADMINISTRATORS = "/administrators/"  # the IAM path that tells an administrator from other users

_CODES = {
    "NoSuchEntity": ExitCode.NOT_FOUND,
    "LimitExceeded": ExitCode.QUOTA,
    "AccessDenied": ExitCode.AUTH,
    "InvalidClientTokenId": ExitCode.AUTH,
    "SignatureDoesNotMatch": ExitCode.AUTH,
}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def user() -> None:
    """Add, list and remove users."""


@user.command(
    cls=Command,
    examples=(
        "trainyard user add anna                      prints the exports for anna, once",
        "trainyard user add anna > anna.env           … to hand over",
        "trainyard user add ben --admin --json",
    ),
)
@click.argument("name")
@click.option("--admin", is_flag=True, help="Let the user see and change what belongs to others, and manage users.")
@home_option
@click.option("--shell", type=click.Choice(list(SYNTAX)), default="posix", help="Syntax of the exports.")
@json_option
def add(name: str, admin: bool, folder: Path | None, shell: str, as_json: bool) -> None:
    """Add a user with an account and a key pair, and print what its clients need. The secret is shown only now."""
    connection = running_yard(folder)
    with _calls(connection) as call:
        made = call("CreateUser", UserName=name, Path=ADMINISTRATORS if admin else "/")["User"]
        try:
            key = call("CreateAccessKey", UserName=name)["AccessKey"]
        except TrainyardError:
            call("DeleteUser", UserName=name)  # without a key the user would only block the name
            raise
    environment = client_environment(connection, keys=KeyPair(key["AccessKeyId"], key["SecretAccessKey"]))
    if as_json:
        secrets = {"access_key_id": key["AccessKeyId"], "secret_access_key": key["SecretAccessKey"]}
        print_json(_description(made) | secrets | {"variables": dict(environment.variables)})
        return
    click.echo(exports(environment, shell))
    say(f'User "{name}" is added. The secret above is not shown again.')


@user.command(cls=Command, examples=("trainyard user ls", "trainyard user ls --json"))
@home_option
@json_option
def ls(folder: Path | None, as_json: bool) -> None:
    """List the users."""
    with _calls(running_yard(folder)) as call:
        users = [_description(entry) for entry in _all_users(call)]
    if as_json:
        print_json({"users": users})
        return
    for entry in users:
        click.echo(
            f"{entry['name']:<24} {entry['account']}  {entry['created_at']}  {'admin' if entry['admin'] else ''}"
        )


@user.command(cls=Command, examples=("trainyard user rm anna",))
@click.argument("name")
@home_option
def rm(name: str, folder: Path | None) -> None:
    """Remove a user and its keys. What it owns stays, and administrators still see it."""
    connection = running_yard(folder)
    if name == connection.credentials.user:
        raise Failure(
            f'User "{name}" cannot be removed here.',
            why=f"The home folder {connection.home.root} holds its keys, and this command line works with them.",
        )
    with _calls(connection) as call:
        call("DeleteUser", UserName=name)
    say(f'User "{name}" is removed. What it owned is kept, and administrators see it.')


class _Calls:
    """IAM operations by name, with their errors as failures of the command."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __call__(self, operation: str, **parameters: Any) -> Mapping[str, Any]:
        from trainyard.wire.client import CallFailed

        try:
            answer: Mapping[str, Any] = self._client.call("iam", operation, **parameters)
        except CallFailed as error:
            raise Failure(error.message, code=_CODES.get(error.code, ExitCode.FAILED)) from error
        return answer


def _all_users(call: _Calls) -> Iterator[Mapping[str, Any]]:
    page = call("ListUsers")
    yield from page["Users"]
    while page["IsTruncated"]:
        page = call("ListUsers", Marker=page["Marker"])
        yield from page["Users"]


@contextlib.contextmanager
def _calls(connection: Connection) -> Iterator[_Calls]:
    client = connection.client()
    try:
        yield _Calls(client)
    finally:
        client.close()


def _description(entry: Mapping[str, Any]) -> dict[str, Any]:
    created: datetime = entry["CreateDate"]
    return {
        "name": entry["UserName"],
        "account": entry["Arn"].split(":")[4],
        "admin": entry["Path"] == ADMINISTRATORS,
        "created_at": created.isoformat(),
    }

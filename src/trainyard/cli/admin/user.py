"""`trainyard user`: manage users. Each user has its own account and cannot see the others."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.connection import KeyPair, YardConnection, client_environment
from trainyard.cli.terminal.console import (
    CommandGroup,
    CommandWithExamples,
    environment,
    home_option,
    json_option,
    result_option,
    running_yard,
    say,
)
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.cli.terminal.tables import print_table
from trainyard.cli.yard.reachability import authority_fingerprint, login_lines
from trainyard.cli.yard.shell import SYNTAX, exports
from trainyard.foundation.errors import TrainyardError

# The pattern of IAM.
_NAME = re.compile(r"[\w+=,.@-]+", re.ASCII)

# The IAM path of administrators.
ADMINISTRATORS = "/administrators/"

_CODES = {
    "LimitExceeded": ExitCode.QUOTA,
    "AccessDenied": ExitCode.AUTH,
    "InvalidClientTokenId": ExitCode.AUTH,
    "SignatureDoesNotMatch": ExitCode.AUTH,
}


@click.group(cls=CommandGroup)
def user() -> None:
    """Add, list and remove users."""


@user.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard user add anna                      prints the exports for anna, only this time",
        "trainyard user add anna > anna.env           to a file for anna",
        "trainyard user add ben --admin --json",
    ),
)
@click.argument("name")
@click.option("--admin", is_flag=True, help="Make the user an administrator, with access to all accounts.")
@home_option
@click.option("--shell", type=click.Choice(list(SYNTAX)), default="posix", help="Syntax of the exports.")
@json_option
def add(name: str, admin: bool, folder: Path | None, shell: str, as_json: JsonFields | None) -> None:
    """Add a user with an account and a key pair, and print the exports for its clients.

    The secret is shown only this time.
    """
    if not _NAME.fullmatch(name):
        raise click.UsageError(f'"{name}" cannot be the name of a user; use letters, digits, and _ + = , . @ -')
    connection = running_yard(folder)
    with _open_iam(connection) as call:
        created = call("CreateUser", UserName=name, Path=ADMINISTRATORS if admin else "/")["User"]
        try:
            key = call("CreateAccessKey", UserName=name)["AccessKey"]
        except TrainyardError:
            # Without a key, the user would only block the name.
            call("DeleteUser", UserName=name)
            raise
    keys = KeyPair(key["AccessKeyId"], key["SecretAccessKey"])
    variables = client_environment(connection.target, keys=keys, current=environment())
    if as_json:
        secrets = {"AccessKeyId": key["AccessKeyId"], "SecretAccessKey": key["SecretAccessKey"]}
        described = _description(created) | secrets | {"Variables": dict(variables.variables)}
        login = {"LoginUrl": connection.runtime.reachable, "Fingerprint": authority_fingerprint(connection.home)}
        print_json(described | login, as_json)
        return
    click.echo(exports(variables, shell))
    say(f'Added user "{name}". The secret above will not be shown again.')
    for line in login_lines(connection):
        say(line)


@user.command(cls=CommandWithExamples, examples=("trainyard user ls", "trainyard user ls --json"))
@home_option
@json_option
def ls(folder: Path | None, as_json: JsonFields | None) -> None:
    """List the users."""
    with _open_iam(running_yard(folder)) as call:
        users = [_description(entry) for entry in _all_users(call)]
    if as_json:
        print_json({"Users": users}, as_json, items="Users")
        return
    rows = [
        (entry["UserName"], entry["Account"], _local_time(entry), "yes" if entry["IsAdministrator"] else "")
        for entry in users
    ]
    print_table(("user", "account", "created", "administrator"), rows)


@user.command(cls=CommandWithExamples, examples=("trainyard user rm anna",))
@click.argument("name")
@home_option
@result_option("UserName")
def rm(name: str, folder: Path | None, as_json: JsonFields | None) -> None:
    """Remove a user and its keys. Its jobs and objects are kept, and administrators can see them."""
    connection = running_yard(folder)
    if name == connection.credentials.user:
        raise Failure(
            f'User "{name}" cannot be removed.',
            why=f"This command line uses the keys of that user, from the home folder {connection.home.root}.",
        )
    with _open_iam(connection) as call:
        call("DeleteUser", UserName=name)
    if as_json:
        print_json({"UserName": name}, as_json)
        return
    say(f'Removed user "{name}". Its jobs and objects are kept, and administrators can see them.')


class _IamCalls:
    """Calls IAM operations by name. Errors become failures of the command."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __call__(self, operation: str, **parameters: Any) -> Mapping[str, Any]:
        from trainyard.wire.client import CallFailed

        try:
            response: Mapping[str, Any] = self._client.call("iam", operation, **parameters)
        except CallFailed as error:
            name = parameters.get("UserName", "")
            if error.code == "EntityAlreadyExists":
                raise Failure(f'There is already a user named "{name}".', next_step="trainyard user ls") from error
            if error.code == "NoSuchEntity":
                raise Failure(
                    f'There is no user named "{name}".', next_step="trainyard user ls", code=ExitCode.NOT_FOUND
                ) from error
            raise Failure(error.message, code=_CODES.get(error.code, ExitCode.FAILED)) from error
        return response


def _local_time(entry: Mapping[str, Any]) -> str:
    return f"{datetime.fromisoformat(entry['CreationTime']).astimezone():%Y-%m-%d %H:%M:%S}"


def _all_users(call: _IamCalls) -> Iterator[Mapping[str, Any]]:
    page = call("ListUsers")
    yield from page["Users"]
    while page["IsTruncated"]:
        page = call("ListUsers", Marker=page["Marker"])
        yield from page["Users"]


@contextlib.contextmanager
def _open_iam(connection: YardConnection) -> Iterator[_IamCalls]:
    client = connection.client()
    try:
        yield _IamCalls(client)
    finally:
        client.close()


def _description(entry: Mapping[str, Any]) -> dict[str, Any]:
    created: datetime = entry["CreateDate"]
    return {
        "UserName": entry["UserName"],
        "Account": entry["Arn"].split(":")[4],
        "IsAdministrator": entry["Path"] == ADMINISTRATORS,
        "CreationTime": created.isoformat(),
    }

"""`trainyard env`: the environment in which AWS clients use the yard."""

import shlex
from collections.abc import Callable
from pathlib import Path

import click

from trainyard.cli.console import Command, home_option, json_option, print_json, running_yard
from trainyard.connection import Environment, client_environment


@click.command(
    cls=Command,
    short_help="Print the exports that make AWS clients use the yard.",
    examples=(
        'eval "$(trainyard env)"                    this shell',
        "trainyard env --shell fish | source        fish",
        "trainyard env --https                      over TLS, with the yard's own authority",
        "trainyard env --json                       for programs",
    ),
)
@home_option
@click.option("--https", is_flag=True, help="Use the https address.")
@click.option("--shell", type=click.Choice(["posix", "fish", "powershell"]), default="posix", help="Syntax to print.")
@json_option
def env(folder: Path | None, https: bool, shell: str, as_json: bool) -> None:
    """Print the exports that make AWS clients use this yard as its administrator."""
    environment = client_environment(running_yard(folder), https=https)
    if as_json:
        print_json({"variables": dict(environment.variables), "unset": list(environment.unset)})
        return
    click.echo(exports(environment, shell))


def exports(environment: Environment, shell: str) -> str:
    """The commands of one shell that lay an environment over its own."""
    unset, export = SYNTAX[shell]
    lines = [unset(name) for name in environment.unset]
    return "\n".join([*lines, *(export(name, value) for name, value in environment.variables.items())])


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _powershell(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


SYNTAX: dict[str, tuple[Callable[[str], str], Callable[[str, str], str]]] = {
    "posix": (lambda name: f"unset {name}", lambda name, value: f"export {name}={shlex.quote(value)}"),
    "fish": (lambda name: f"set -e {name}", lambda name, value: f"set -gx {name} {_fish(value)}"),
    "powershell": (
        lambda name: f"Remove-Item Env:{name} -ErrorAction SilentlyContinue",
        lambda name, value: f"$env:{name} = {_powershell(value)}",
    ),
}

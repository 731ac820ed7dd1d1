"""`trainyard env` and `trainyard completion`: code for a shell to evaluate."""

import shlex
from collections.abc import Callable
from pathlib import Path

import click

from trainyard._sdk.connection import ClientEnvironment, client_environment
from trainyard.cli.terminal.console import (
    CommandWithExamples,
    environment,
    home_option,
    json_option,
    profile_option,
    select_target,
)
from trainyard.cli.terminal.json_output import JsonFields, print_json


@click.command(
    cls=CommandWithExamples,
    examples=(
        'eval "$(trainyard env)"                    this shell',
        "trainyard env --shell fish | source        fish",
        "trainyard env --https                      over TLS, with the certificate authority of the yard",
        "trainyard env --json                       for programs",
    ),
)
@home_option
@profile_option
@click.option("--https", is_flag=True, help="Use the https address.")
@click.option("--shell", type=click.Choice(["posix", "fish", "powershell"]), default="posix", help="Syntax to print.")
@json_option
def env(folder: Path | None, https: bool, shell: str, as_json: JsonFields | None) -> None:
    """Print the exports that make AWS clients use the yard of the current profile or of this machine."""
    client = client_environment(select_target(folder), https=https, current=environment())
    if as_json:
        print_json({"Variables": dict(client.variables), "Unset": list(client.unset)}, as_json)
        return
    click.echo(exports(client, shell))


def exports(client: ClientEnvironment, shell: str) -> str:
    """Return the commands that set and unset the variables of a client in a shell."""
    unset, export = SYNTAX[shell]
    lines = [unset(name) for name in client.unset]
    return "\n".join([*lines, *(export(name, value) for name, value in client.variables.items())])


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


@click.command(
    cls=CommandWithExamples,
    examples=(
        'eval "$(trainyard completion bash)"                                        in ~/.bashrc',
        'eval "$(trainyard completion zsh)"                                         in ~/.zshrc',
        "trainyard completion fish > ~/.config/fish/completions/trainyard.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None, f"click supports {shell}"
    click.echo(completion_class(ctx.find_root().command, {}, "trainyard", "_TRAINYARD_COMPLETE").source())

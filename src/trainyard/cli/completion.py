"""`trainyard completion`: completion of commands and options for a shell."""

import click

from trainyard.cli.console import Command


@click.command(
    cls=Command,
    short_help="Print the completion script of a shell.",
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

    chosen = get_completion_class(shell)
    assert chosen is not None, f"click completes {shell}"
    click.echo(chosen(ctx.find_root().command, {}, "trainyard", "_TRAINYARD_COMPLETE").source())

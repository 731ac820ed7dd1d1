"""Commands with commands below them, of which one is meant where none is named."""

from typing import Any

import click

from trainyard.cli.console import write_examples


class ChoosingGroup(click.Group):
    """`trainyard rules JOB` means `trainyard rules show JOB`, unless JOB is the name of a command."""

    def __init__(self, *arguments: Any, usual: str, examples: tuple[str, ...] = (), **options: Any) -> None:
        options.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*arguments, **options)
        self._usual, self.examples = usual, examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_help = bool(args) and args[0] in ("-h", "--help")
        if not is_help and (not args or args[0] not in self.commands):
            args = [self._usual, *args]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        super().format_help(ctx, formatter)

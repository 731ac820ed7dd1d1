"""Choices of the command line that the user may write in any case, and that are shown as the API spells them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class WordChoice(click.Choice[str]):
    """One of several words, in any case. Messages and completions show the words as they are, which click's do not."""

    def __init__(self, choices: Sequence[str]) -> None:
        super().__init__(choices, case_sensitive=False)

    def get_invalid_choice_message(self, value: object, ctx: click.Context | None) -> str:  # noqa: ARG002 - click's
        return f'"{value}" is not one of {", ".join(self.choices)}.'

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        param: click.Parameter,  # noqa: ARG002 - the same
        incomplete: str,
    ) -> list["CompletionItem"]:
        """Complete the words that start with what has been typed, in any case."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in self.choices if word.lower().startswith(incomplete.lower())]

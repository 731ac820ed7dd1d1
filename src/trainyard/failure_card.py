"""Why a job failed and what to try, as lines for a person."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard.showing import inert

Card = Mapping[str, Any]

_CODE = "/opt/ml/code/"  # where instances have the code; at home it lies elsewhere


def card_lines(card: Card) -> list[str]:
    """The card in short form: what sort of failure, what was raised, where, and what to try."""
    return [inert(line) for line in (*_head(card), *_raised(card), *(f"try: {advice}" for advice in card["Advice"]))]


def last_lines(card: Card) -> Sequence[str]:
    """The end of what the failing instance wrote."""
    return [inert(line) for line in card.get("LastLines", ())]


def _head(card: Card) -> Iterator[str]:
    where = f" on {card['Instance']}" if card.get("Instance") else ""
    if card.get("Rank") is not None:
        where = f" of rank {card['Rank']}{where}"
    yield f"{card['Class']}{where}{_ending(card)}"


def _ending(card: Card) -> str:
    if card.get("Signal"):
        return f", ended by {card['Signal']}"
    return f", exit code {card['ExitCode']}" if card.get("ExitCode") is not None else ""


def _raised(card: Card) -> Iterator[str]:
    raised = card.get("Exception")
    if not raised:
        yield from card.get("Summary", "").splitlines()
        return
    message = raised.get("Message", "")
    yield from f"{raised['Type']}: {message}".splitlines() if message else [raised["Type"]]
    if raised.get("File"):
        function = f" in {raised['Function']}" if raised.get("Function") else ""
        source = f": {raised['Source'].strip()}" if raised.get("Source") else ""
        yield f"at {raised['File'].removeprefix(_CODE)}:{raised.get('Line', '?')}{function}{source}"

"""Types the commands of a transcript on a terminal again, as its reader would."""

from pathlib import Path

import pytest

from scripts.transcript import MARK, mask_numbers, page_steps, type_commands

DOCS = Path(__file__).resolve().parents[2] / "docs"
TRANSCRIPTS = {page.name: page for page in sorted(DOCS.rglob("*.md")) if MARK in page.read_text()}


def test_there_is_a_transcript() -> None:
    assert TRANSCRIPTS


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_commands_print_what_their_transcript_shows(name: str, tmp_path: Path) -> None:
    for typed in type_commands(page_steps(TRANSCRIPTS[name]), tmp_path):
        shown = "\n".join(typed.step.expected)
        assert mask_numbers(typed.printed.rstrip()) == mask_numbers(shown), f"{name}:{typed.step.line}"

"""Runs every code block in README.md and docs/ as a reader would: page by page, in one shell, from top to bottom.

A page that needs a yard starts it, or says `<!-- with a running yard -->` in its first lines. A block that cannot be
run has `<!-- not run: reason -->` before it. test_transcripts.py runs the pages that are typed on a terminal.
"""

import subprocess
from pathlib import Path

import pytest

from scripts.transcript import MARK
from tests.docs.blocks import NOT_RUN, RUN, Block, Step, blocks, is_printed, outcomes, script, steps
from tests.docs.shells import shell_environment

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = {
    str(page.relative_to(REPOSITORY)): page
    for page in (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md")))
}
WITH_YARD = "<!-- with a running yard -->"
LONG = {"docs/data.md", "docs/debugger.md", "docs/distributed.md"}  # run by `make examples`
TIMEOUT_S = 300

UP = 'trainyard up --detach && eval "$(trainyard env)"'
DOWN = "if trainyard status > /dev/null 2>&1; then trainyard down; fi"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name, marks=[pytest.mark.slow] * (name in LONG))
        for name, page in PAGES.items()
        if any(block.is_run for block in blocks(page)) and MARK not in page.read_text()
    ],
)
def test_the_blocks_of_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    first = [Step(0, UP, ())] if WITH_YARD in page.read_text() else []
    wanted = [*first, *(step for block in blocks(page) if block.is_run for step in steps(block)), Step(0, DOWN, ())]
    ran = _run_in_shell(script(wanted), tmp_path)
    results = outcomes(ran.stdout)
    for step, (printed, status) in zip(wanted, results, strict=False):
        where = f"{page.name}:{step.line}: {step.command}"
        assert status == 0, f"{where}\nended with {status}:\n{printed}\n{ran.stderr}"
        assert is_printed(step.expected, printed), f"{where}\nprinted:\n{printed}\ninstead of:\n{step.expected}"
    assert len(results) == len(wanted), ran.stderr


def test_every_block_of_every_page_is_run_or_says_why_not() -> None:
    found = [(name, block) for name, page in PAGES.items() for block in blocks(page)]
    assert found
    assert [f"{name}:{block.line}: {block.language}" for name, block in found if not _is_settled(block)] == []


def _is_settled(block: Block) -> bool:
    return block.language in RUN or (block.language in NOT_RUN and not block.reason)


def _run_in_shell(text: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-c", text],
        env=shell_environment(folder),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

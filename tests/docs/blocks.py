"""Code blocks of Markdown pages, and how a whole page is run as one session of a shell."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

RUN = frozenset({"python", "console", "bash"})
NOT_RUN = frozenset({"text", "toml", "json", "make"})

_FENCE = re.compile(
    r"(?:<!-- (?P<remark>[^\n]*?) -->\n+)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE
)
_REASON = "not run: "
_MARK = "\x1e"


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `reason` says why it is not run; it stands in a comment before the block."""

    page: Path
    line: int
    language: str
    code: str
    reason: str

    @property
    def is_run(self) -> bool:
        return self.language in RUN and not self.reason


@dataclass(frozen=True, slots=True)
class Step:
    """A command for the shell, and the lines that it should print; an ellipsis in them stands for anything."""

    line: int
    command: str
    expected: tuple[str, ...]


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            page,
            text.count("\n", 0, found.start("code")),
            found["language"],
            found["code"],
            remark.removeprefix(_REASON) if (remark := found["remark"] or "").startswith(_REASON) else "",
        )
        for found in _FENCE.finditer(text)
    ]


def steps(block: Block) -> list[Step]:
    """What to type. In a console block a line after `$ ` is typed, and those up to the next are what it prints."""
    if block.language == "python":
        return [Step(block.line, f"python -c {shlex.quote(block.code)}", ())]
    if block.language == "bash":
        return [Step(block.line, block.code.rstrip(), ())]
    made: list[Step] = []
    for offset, line in enumerate(block.code.splitlines(), start=1):
        if line.startswith("$ "):
            made.append(Step(block.line + offset, line[2:], ()))
        elif line.startswith("> "):
            made[-1] = Step(made[-1].line, f"{made[-1].command}\n{line[2:]}", ())
        else:
            made[-1] = Step(made[-1].line, made[-1].command, (*made[-1].expected, line))
    return made


def script(page_steps: list[Step]) -> str:
    """One shell script of all steps; after each it prints a mark and the exit status."""
    return "\n".join(f"{step.command}\nprintf '{_MARK}%s{_MARK}' $?" for step in page_steps)


def outcomes(printed: str) -> list[tuple[str, int]]:
    """What each step of such a script printed, and its exit status."""
    pieces = printed.split(_MARK)
    return [(pieces[index], int(pieces[index + 1])) for index in range(0, len(pieces) - 1, 2)]


def is_printed(expected: tuple[str, ...], printed: str) -> bool:
    """Whether the expected lines are the printed ones, with an ellipsis for any text."""
    pattern = re.escape("\n".join(expected)).replace("…", ".*")
    return not expected or re.fullmatch(pattern, printed.rstrip("\n"), re.DOTALL) is not None

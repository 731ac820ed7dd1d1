"""Code blocks of Markdown pages, and how a page runs as one shell session."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

RUN = frozenset({"python", "console", "bash"})
NOT_RUN = frozenset({"text", "toml", "json", "make", "html"})

_FENCE = re.compile(
    r"(?:<!-- (?P<remark>[^\n]*?) -->\n+)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE
)
_REASON = "not run: "
_MARK = "\x1e"


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `reason` says why it is not run, from the comment before the block."""

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
    """A shell command and its expected output, in which an ellipsis stands for any text."""

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
    """Return the commands of a block. In a console block, commands start with `$ ` and the lines after are output."""
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
    """Return one shell script of all steps, which prints a mark and the exit status after each."""
    return "\n".join(f"{step.command}\nprintf '{_MARK}%s{_MARK}' $?" for step in page_steps)


def outcomes(printed: str) -> list[tuple[str, int]]:
    """Return the output and the exit status of each step of such a script."""
    pieces = printed.split(_MARK)
    return [(pieces[index], int(pieces[index + 1])) for index in range(0, len(pieces) - 1, 2)]


def is_printed(expected: tuple[str, ...], printed: str) -> bool:
    """Tell whether the output is as expected, where an ellipsis stands for any text."""
    pattern = re.escape("\n".join(expected)).replace("…", ".*")
    return not expected or re.fullmatch(pattern, printed.rstrip("\n"), re.DOTALL) is not None

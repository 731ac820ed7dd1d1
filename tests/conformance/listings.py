"""Listings of the documents that describe the system, as pages in `seeds/`: quoted, mended, and made programs.

A page is named by the number of its document. Its blocks are

    before        what the document takes for granted at this place
    quoted        the listing, word for word; with a name it is a part of a script, which `before` finds as quoted[name]
    diff          what is mended in it; each change begins with a line that says why. diff-sagemaker is for that package
    after         what must hold in the end
    shows         lines of which each is part of what the program prints
"""

import re
from dataclasses import dataclass
from pathlib import Path

PAGES = sorted((Path(__file__).parent / "seeds").glob("*.md"))

_BLOCK = re.compile(r"^```(?P<kind>[\w-]+)(?: (?P<name>\w+))?\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_KINDS = ("before", "quoted", "diff", "diff-sagemaker", "after", "shows")
# The package, but no longer word that it is part of, such as sagemaker_session or the tag of an image.
_PACKAGE = re.compile(r"(?<![\w-])sagemaker(?=[.\s])")

# What stands for a notebook or a terminal, in which documents call commands.
_SHELL = """
import os, shlex, subprocess

def shell(command):
    words = shlex.split(command)
    program = shlex.split(os.environ["LISTING_AWS"]) if words[0] == "aws" else words[:1]
    subprocess.run([*program, *words[1:]], check=True)

"""


@dataclass(frozen=True, slots=True)
class Program:
    """A listing that can be run, and what it must print."""

    text: str
    shows: tuple[str, ...]


def program(page: Path, package: str) -> Program:
    """The listing of a page for one of the packages sagemaker and trainyard."""
    blocks = _blocks(page)
    parts = {name: _mended(blocks, name, package) for kind, name in blocks if kind == "quoted"}
    listing = parts.pop("")
    quoted = f"quoted = {parts!r}\n"
    text = "\n".join((_SHELL, quoted, blocks.get(("before", ""), ""), listing, blocks["after", ""]))
    shows = tuple(blocks["shows", ""].splitlines())
    return Program(text if package == "sagemaker" else _PACKAGE.sub(package, text), shows)


def quoted_lines(page: Path) -> list[list[str]]:
    """The lines of each quoted block, less the empty ones and the spaces at their ends."""
    quoted = [text for (kind, _), text in _blocks(page).items() if kind == "quoted"]
    return [[line.rstrip() for line in text.splitlines() if line.strip()] for text in quoted]


def _blocks(page: Path) -> dict[tuple[str, str], str]:
    found = {(block["kind"], block["name"] or ""): block["text"] for block in _BLOCK.finditer(page.read_text())}
    unknown = [kind for kind, _ in found if kind not in _KINDS]
    assert not unknown, f"{page.name} has blocks that mean nothing: {unknown}"
    return found


def _mended(blocks: dict[tuple[str, str], str], name: str, package: str) -> str:
    text = blocks["quoted", name]
    for kind in ("diff", f"diff-{package}"):
        for was, becomes in _changes(blocks.get((kind, name), "")):
            assert text.count(was) == 1, f"to be mended once, but there {text.count(was)} times:\n{was}"
            text = text.replace(was, becomes)
    return text


def _changes(diff: str) -> list[tuple[str, str]]:
    """What becomes what; each change is lines with -, then lines with +, below its reason."""
    changes = re.split(r"^# .+\n", diff, flags=re.MULTILINE)
    assert not changes[0], f"a change without a reason:\n{changes[0]}"
    return [(_lines(change, "-"), _lines(change, "+")) for change in changes[1:]]


def _lines(change: str, mark: str) -> str:
    return "".join(f"{line[1:]}\n" for line in change.splitlines() if line.startswith(mark))

"""Finds the exception that ended a Python program in its output."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# A prefix of the header also precedes the lines that follow: "[rank0]: " of torchrun, "  | " of an exception group.
_HEADER = re.compile(r"(?P<prefix>.*?)(?P<mark>\+ Exception Group |Original )?Traceback \(most recent call last\):\s*")
_FRAME = re.compile(r'(?P<indent>\s*)File "(?P<file>.+?)", line (?P<line>\d+)(?:, in (?P<function>.*))?\s*')
_MARKERS = re.compile(r"[~^ ]+")
_RAISED = re.compile(r"(?P<type>[^\W\d][\w.]*)(?:: (?P<message>.*))?\s*")
_SYNTAX = re.compile(r"(?P<type>SyntaxError|IndentationError|TabError): (?P<message>.*)")
_MAX_MESSAGE = 2000
_DRIVERS = "/opt/ml/input/data/sm_drivers/"
_CHILD_FAILED = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a source file, with its text if the traceback shows it."""

    file: str
    line: int
    function: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class RaisedException:
    """An exception. `where` is the innermost line of the user's own code, or of any code if none is theirs."""

    type: str
    message: str
    where: SourceLine | None

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type

    def as_payload(self) -> Mapping[str, Any]:
        payload: dict[str, Any] = {"type": self.type, "message": self.message}
        if self.where is not None:
            where = self.where
            payload |= {"file": where.file, "line": where.line, "function": where.function, "source": where.text}
        return payload


def find_exception(text: str, code_folder: str) -> RaisedException | None:
    """Return the last exception whose traceback is in the text; None when there is none.

    That a launcher's child has failed counts only if no other exception says why.
    """
    lines = text.splitlines()
    of_launcher = None
    for number in range(len(lines) - 1, -1, -1):
        header = _HEADER.fullmatch(lines[number])
        if header is None:
            continue
        found = _read_traceback(_remove_prefix(lines[number + 1 :], header), code_folder)
        if found is not None and not _is_of_launcher(found):
            return found
        of_launcher = of_launcher or found
    return of_launcher or _find_syntax_error(lines, code_folder)


def _is_of_launcher(exception: RaisedException) -> bool:
    """Return whether torchrun or a driver of the sagemaker SDK raised this because its child had failed."""
    is_of_driver = exception.where is not None and exception.where.file.startswith(_DRIVERS)
    return is_of_driver or exception.type == _CHILD_FAILED


def _remove_prefix(lines: Sequence[str], header: re.Match[str]) -> list[str]:
    # The lines of an exception group start with "  | ", but its header with "  + ".
    prefix = f"{header['prefix']}| " if header["mark"] and "Group" in header["mark"] else header["prefix"]
    return [line.removeprefix(prefix) for line in lines]


def _read_traceback(lines: Sequence[str], code_folder: str) -> RaisedException | None:
    """Read the frames and the exception. A driver of the sagemaker SDK removes the indentation of all lines."""
    frames: list[SourceLine] = []
    is_source = False
    for number, line in enumerate(lines):
        if frame := _FRAME.fullmatch(line):
            frames.append(_source_line(frame, lines[number + 1 : number + 2]))
            is_source = not frame["indent"] and not frame["file"].startswith("<")
        elif is_source or _MARKERS.fullmatch(line):
            is_source = False
        elif line and not line[0].isspace():
            raised = _RAISED.fullmatch(line)
            return _exception_from(raised, frames, code_folder) if raised and frames else None
    return None


def _source_line(frame: re.Match[str], following: Sequence[str]) -> SourceLine:
    shown = following[0].strip() if following and not _FRAME.fullmatch(following[0]) else ""
    return SourceLine(frame["file"], int(frame["line"]), frame["function"] or "", shown)


def _exception_from(match: re.Match[str], frames: Sequence[SourceLine], code_folder: str) -> RaisedException:
    message = (match["message"] or "").strip()[:_MAX_MESSAGE]
    own = [frame for frame in frames if frame.file.startswith(code_folder) or not frame.file.startswith(("/", "<"))]
    return RaisedException(match["type"], message, (own or frames)[-1])


def _find_syntax_error(lines: Sequence[str], code_folder: str) -> RaisedException | None:
    """Find the error of a program that cannot be compiled, which has no traceback but only the faulty line."""
    for number in range(len(lines) - 1, -1, -1):
        raised = _SYNTAX.fullmatch(lines[number])
        if raised is None:
            continue
        for earlier in range(number - 1, max(-1, number - 5), -1):
            if frame := _FRAME.fullmatch(lines[earlier]):
                return _exception_from(raised, [_source_line(frame, lines[earlier + 1 : earlier + 2])], code_folder)
    return None

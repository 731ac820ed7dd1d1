"""Change one setting in a TOML file, and leave its comments and the other settings as they are."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.files import replace_file
from trainyard.foundation.settings import value_text


def write_setting(file: Path, name: str, value: Any) -> None:
    """Set a setting in a file, which is created if it is missing; None removes the setting.

    Raises InvalidRequest if the file is not valid, or if its form cannot be changed safely line by line.
    """
    text = file.read_text() if file.exists() else ""
    before = _parse(file, text)
    wanted = {key: each for key, each in before.items() if key != name}
    if value is not None:
        wanted[name] = _toml_value(value)
    changed = _change_line(text, name, None if value is None else f"{name} = {_toml_text(value)}")
    if _parse(file, changed) != wanted:
        raise InvalidRequest(f'{file} writes "{name}" in a form that cannot be changed automatically; edit the file.')
    replace_file(file, changed.encode())


def _change_line(text: str, name: str, line: str | None) -> str:
    """Return the text with the line of a setting replaced, added or, with None, removed."""
    lines = text.splitlines()
    pattern = re.compile(rf"\s*{re.escape(name)}\s*=")
    found = next((number for number, each in enumerate(lines) if pattern.match(each)), None)
    if found is not None:
        lines[found : found + 1] = [] if line is None else [line]
    elif line is not None:
        lines.append(line)
    return "".join(f"{each}\n" for each in lines)


def _parse(file: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequest(f"{file} is not valid TOML: {error}.") from error


def _toml_value(value: Any) -> Any:
    """Return a value as TOML has it: durations and paths are texts."""
    return value if isinstance(value, bool | int | float | str) else value_text(value)


def _toml_text(value: Any) -> str:
    plain = _toml_value(value)
    if isinstance(plain, bool) or not isinstance(plain, str):
        return value_text(plain)
    # TOML has the escapes of JSON, but no pairs of surrogates.
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")

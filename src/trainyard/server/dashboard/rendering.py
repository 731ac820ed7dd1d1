"""Renders pages with Jinja2, and values as JSON for their scripts."""

import hashlib
import json
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

HERE = Path(__file__).parent
STATIC, PAGES, TEMPLATES = HERE / "static", HERE / "pages", HERE / "templates"
# Kinds of files that pages may load.
STATIC_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}

# Characters that change how the text around them reads: bidirectional controls and other invisible ones.
_INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cs"})
_HARMLESS = frozenset("\n\t\u200d\ufe0f")
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


class StaticFiles:
    """The scripts and styles of the dashboard, by their path in its addresses.

    The addresses contain a hash of all contents, so browsers may keep each file forever.
    """

    def __init__(self) -> None:
        frame = {str(file.relative_to(STATIC)): file for file in _files(STATIC)}
        pages = {f"pages/{file.relative_to(PAGES)}": file for file in _files(PAGES)}
        self._files = frame | pages
        digest = hashlib.sha256()
        for name, file in sorted(self._files.items()):
            digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
        self.version = digest.hexdigest()[:12]

    def find(self, path: str) -> Path | None:
        return self._files.get(path)

    def address(self, path: str) -> str:
        """Return the address of a file. KeyError for one that does not exist, so that a test of the page finds it."""
        if path not in self._files:
            raise KeyError(f"the dashboard has no static file {path}")
        return f"/-/static/{self.version}/{path}"


def make_environment(files: StaticFiles) -> Environment:
    """Return the environment of all templates. Everything is escaped, and an unknown variable is an error."""
    environment = Environment(
        loader=FileSystemLoader([TEMPLATES, PAGES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        visible=show_invisible,
        bytes=format_bytes,
        duration=format_duration,
        number=format_number,
        time=time_element,
        json=json_script,
    )
    environment.globals.update(static=files.address)
    return environment


def show_invisible(text: object) -> str:
    """Replace characters that a reader cannot see, or that change the text around them, by visible ones."""
    return "".join(_show_character(character) for character in str(text))


def format_bytes(size: float) -> str:
    """Return a size with three significant digits, such as 1.23 GB."""
    size, unit = float(size), 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} B" if unit == 0 else f"{size:.3g} {_UNITS[unit]}"


def format_duration(value: float | timedelta) -> str:
    """Return a duration in its two largest units, such as 2 h 5 min."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes = round(seconds) // 60
    if minutes < 60:
        return f"{minutes} min {round(seconds) % 60} s"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def format_number(value: float) -> str:
    """Return a number with five significant digits, and whole numbers with separators."""
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.5g}"


def time_element(moment: datetime) -> Markup:
    """Return a <time> element. The page's script shows it relative to now, in the reader's time zone."""
    stamp = moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Markup('<time datetime="{}">{} UTC</time>').format(stamp, moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M"))


def to_json(value: Any) -> str:
    """Return compact JSON: times as ISO 8601, and numbers that JSON lacks (NaN, infinity) as null."""
    return json.dumps(_plain(value), separators=(",", ":"), allow_nan=False)


def json_script(value: Any, id: str = "data") -> Markup:  # noqa: A002 - the attribute's name
    """Return an element that holds data for the page's script. The data cannot end the element."""
    text = to_json(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup('<script type="application/json" id="{}">{}</script>').format(escape(id), Markup(text))


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.suffix in STATIC_TYPES and file.is_file()]


def _show_character(character: str) -> str:
    if character in _HARMLESS or unicodedata.category(character) not in _INVISIBLE:
        return character
    code = ord(character)
    # Unicode has pictures of the ASCII controls.
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else f"⟨U+{code:04X}⟩"


def _plain(value: Any) -> Any:
    match value:
        case float():
            return value if value - value == 0 else None
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case timedelta():
            return value.total_seconds()
        case Mapping():
            return {str(name): _plain(member) for name, member in value.items()}
        case str() | int() | None:
            return value
        case list() | tuple():
            return [_plain(member) for member in value]
        case bytes():
            return value.decode("utf-8", "replace")
    return _plain(list(value))

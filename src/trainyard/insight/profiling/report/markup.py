"""HTML as values: text is escaped when it becomes part of an element, and only what is an element already is not.

Names in a profile come from programs, which may call an operator `<script>`. So nothing here joins text to HTML by
itself: a `str` is always text, and a `Html` is the result of `element`.
"""

import re
from collections.abc import Iterable
from html import escape


class Html(str):
    """HTML that has been escaped."""

    __slots__ = ()


NOTHING = Html()

_BREAK = Html("<wbr>")
_WORD = re.compile(r"[^:_/<,.…]*[:_/<,.…]+|[^:_/<,.…]+")
# Elements with sentences, and the space between a number and its unit in them.
_PROSE = frozenset({"p", "li"})
_FIGURE = re.compile(r"(?<=\d) (?=(?:%|°C|[nµm]?s|min|h|d|[kMGTP]?B|J|W|MHz|USD)(?!\w))")
_VOID = frozenset({"br", "hr", "img", "input", "meta"})
# Control characters, which HTML does not have, except white space.
_CONTROLS = dict.fromkeys({*range(32), *range(127, 160)} - {9, 10, 13}, "�")


def element(name: str, /, *children: str | None, **attributes: str | float | None) -> Html:
    """Return an element. Attributes that are None are left out; underscores in their names stand for hyphens."""
    head = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape_text(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{head}>")
    content = join(map(_keep_units, children) if name in _PROSE else children)
    return Html(f"<{name}{head}>{content}</{name}>")


def join(parts: Iterable[str | None], separator: str = "") -> Html:
    """Return the parts one after another, with text escaped."""
    between = separator if isinstance(separator, Html) else escape_text(separator)
    return Html(between.join(part if isinstance(part, Html) else escape_text(part) for part in parts if part))


def escape_text(text: str) -> Html:
    return Html(escape(text.translate(_CONTROLS), quote=True))


def _keep_units(text: str | None) -> str | None:
    """Return a text whose figures keep their units on the same line."""
    return text if text is None or isinstance(text, Html) else _FIGURE.sub("\N{NO-BREAK SPACE}", text)


def name_of(text: str, *, limit: int = 96) -> Html:
    """Return a name from a program, isolated from the direction of the text around it, and shortened in the middle.

    It may be broken after what separates its words, and nowhere else.
    """
    if len(text) <= limit:
        return element("code", *_words(text))
    half = limit // 2
    return element("code", *_words(f"{text[:half]}…{text[-half:]}"), title=text[:600])


def _words(text: str) -> list[str]:
    return [part for word in _WORD.findall(text) for part in (word, _BREAK)][:-1]

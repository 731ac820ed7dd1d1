"""HTML for notebooks: small tables that follow the colours of the page, light or dark, and load nothing.

Everything passed in is text, and is escaped here. Objects return such HTML from `_repr_html_`, which notebooks call.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

# Colours and fonts are those of the page; only lines and emphasis are set.
_TABLE = "border-collapse:collapse;margin:4px 0;font-size:inherit;color:inherit;background:none"
_CELL = "padding:2px 10px 2px 0;text-align:left;vertical-align:top;border:0;color:inherit;background:none"
_HEAD = f"{_CELL};font-weight:600;opacity:.65;white-space:nowrap"
_CURVE_WIDTH, _CURVE_HEIGHT = 160, 28
# More points than pixels would only make the document large.
_MAX_CURVE_POINTS = 320


class Markup(str):
    """HTML that is used as it is. Only the functions of this module make it."""

    __slots__ = ()


def card(title: str, facts: Mapping[str, str], *parts: Markup) -> str:
    """Return a title, a table of names and values, and further parts. Empty values are left out."""
    rows = "".join(
        f'<tr><th style="{_HEAD}">{escape(name)}</th><td style="{_CELL}">{_html(value)}</td></tr>'
        for name, value in facts.items()
        if value
    )
    table = f'<table style="{_TABLE}">{rows}</table>' if rows else ""
    return f'<div style="color:inherit"><strong>{escape(title)}</strong>{table}{"".join(parts)}</div>'


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> Markup:
    """Return a table, with its title above it; empty without rows."""
    head = "".join(f'<th style="{_HEAD}">{escape(column)}</th>' for column in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    above = f"<strong>{escape(title)}</strong>" if title else ""
    return Markup(f'{above}<table style="{_TABLE}"><tr>{head}</tr>{body}</table>' if body else "")


def note(text: str) -> Markup:
    """Return a faint line below a card."""
    return Markup(f'<div style="color:inherit;opacity:.65;font-size:.9em">{escape(text)}</div>')


def curve(values: Sequence[float]) -> Markup:
    """Return a small curve of values; empty for fewer than two finite ones."""
    finite = [(number, value) for number, value in enumerate(values) if math.isfinite(value)]
    if len(finite) < 2:
        return Markup()
    chosen = finite[:: -(-len(finite) // _MAX_CURVE_POINTS)]
    low, high = min(value for _, value in finite), max(value for _, value in finite)
    last, height = max(len(values) - 1, 1), (high - low) or 1.0
    points = " ".join(
        f"{number / last * _CURVE_WIDTH:.1f},{(high - value) / height * (_CURVE_HEIGHT - 4) + 2:.1f}"
        for number, value in chosen
    )
    return Markup(
        f'<svg width="{_CURVE_WIDTH}" height="{_CURVE_HEIGHT}" role="img"><polyline points="{points}" fill="none" '
        'stroke="currentColor" stroke-width="1.5"/></svg>'
    )


def _cell(value: str) -> str:
    return f'<td style="{_CELL}">{_html(value)}</td>'


def _html(value: str) -> str:
    return value if isinstance(value, Markup) else escape(value)

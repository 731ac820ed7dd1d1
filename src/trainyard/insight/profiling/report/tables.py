"""Tables that a screen reader can read, and that scroll by themselves on a narrow page."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.insight.profiling.report.markup import NOTHING, Html, element


@dataclass(frozen=True, slots=True)
class TableColumn:
    title: str
    is_number: bool = False
    is_wide: bool = False  # a bar or a box, which takes the room that is left
    is_prose: bool = False  # sentences, below which the other cells of a row do not fit on a narrow page


def text_columns(*titles: str) -> list[TableColumn]:
    return [TableColumn(title) for title in titles]


def number_columns(*titles: str) -> list[TableColumn]:
    return [TableColumn(title, is_number=True) for title in titles]


def draw_table(
    caption: str,
    columns: Sequence[TableColumn],
    rows: Sequence[Sequence[str]],
    *,
    limit: int | None = None,
    of_what: str = "rows",
) -> Html:
    """Return a table; nothing without rows. The first cell of a row is its head. `of_what` names rows left out."""
    if not rows:
        return NOTHING
    head = element("tr", *(element("th", each.title, scope="col", class_=_class(each)) for each in columns))
    is_stacked = any(each.is_prose for each in columns)
    lines = [_line(columns, row, is_stacked=is_stacked) for row in rows[:limit]]
    kind = "figures stacked" if is_stacked else "figures"
    table = element("table", element("caption", caption), element("thead", head), element("tbody", *lines), class_=kind)
    left_out = len(rows) - len(lines)
    note = element("p", f"{left_out:,} more {of_what} are left out.", class_="aside") if left_out else None
    scroll = element("div", table, class_="scroll", tabindex=0, role="region", aria_label=caption)
    return element("div", scroll, note, class_="table")


def draw_facts(facts: Sequence[tuple[str, str]]) -> Html:
    """Return names with their values; those without a value are left out."""
    pairs = [element("div", element("dt", name), element("dd", value)) for name, value in facts if value]
    return element("dl", *pairs, class_="facts") if pairs else NOTHING


def _line(columns: Sequence[TableColumn], row: Sequence[str], *, is_stacked: bool) -> Html:
    first, *rest = row
    cells = [
        element("td", cell, class_=_class(column), data_title=column.title if is_stacked and column.is_number else None)
        for column, cell in zip(columns[1:], rest, strict=True)
    ]
    return element("tr", element("th", first, scope="row"), *cells)


def _class(column: TableColumn) -> str | None:
    if column.is_prose:
        return "prose"
    return "number" if column.is_number else ("wide" if column.is_wide else None)

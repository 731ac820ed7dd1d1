"""Reads pages of reports as a reader does: the text of their parts, and their tables by caption."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"br", "hr", "img", "input", "meta", "wbr"}
_UNSEEN = {"style", "script", "title"}


@dataclass
class Node:
    """An element with its children, which are elements and text."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: "list[Node | str]" = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text that a reader sees, to whom all spaces look alike."""
        seen = (
            each.replace("\N{NO-BREAK SPACE}", " ") if isinstance(each, str) else each.text for each in self.children
        )
        between = "" if self.name in ("code", "span", "p", "td", "th", "b", "strong", "summary", "li") else " "
        return "" if self.name in _UNSEEN else between.join(seen)

    def find_all(self, name: str = "", *, of_class: str = "", identifier: str = "") -> "list[Node]":
        found = []
        for child in self.children:
            if isinstance(child, Node):
                is_found = (not name or child.name == name) and (
                    not identifier or child.attributes.get("id") == identifier
                )
                if is_found and (not of_class or of_class in child.attributes.get("class", "").split()):
                    found.append(child)
                found += child.find_all(name, of_class=of_class, identifier=identifier)
        return found

    def find(self, name: str = "", *, of_class: str = "", identifier: str = "") -> "Node":
        found = self.find_all(name, of_class=of_class, identifier=identifier)
        assert found, f"There is no {name} {of_class} {identifier}."
        return found[0]

    def table(self, caption: str) -> list[dict[str, str]]:
        """Return the rows of the table with this caption, by the titles of its columns; nothing if there is none."""
        for table in self.find_all("table"):
            if table.find("caption").text == caption:
                head, *rows = (
                    [cell.text for cell in row.find_all() if cell.name in ("th", "td")] for row in table.find_all("tr")
                )
                return [dict(zip(head, row, strict=True)) for row in rows]
        return []


class _TreeBuilder(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Node("")]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(node)
        if tag not in _VOID:
            self.open.append(node)

    def handle_endtag(self, tag: str) -> None:
        node = self.open.pop()
        assert node.name == tag, f"{node.name} ends as {tag}."

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read_page(html: str) -> Node:
    """Return the page as a tree. An element that is not closed, or in another order, is an error."""
    builder = _TreeBuilder()
    builder.feed(html)
    builder.close()
    assert len(builder.open) == 1, f"{builder.open[-1].name} is not closed."
    return builder.open[0]

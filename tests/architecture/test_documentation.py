"""What the code can say of itself, the documentation says too, and says the same."""

import re
from pathlib import Path

import pytest

from scripts.generate_docs import DOCS, GENERATORS, refreshed
from trainyard.cli.main import COMMANDS
from trainyard.foundation.settings import rows
from trainyard.server.services.registry import MODULES, service
from trainyard.server.settings import PREFIX, ServerSettings

PAGES = sorted(DOCS.rglob("*.md"))

_GENERATED = re.compile(r"<!-- generated: (\w+) -->")
_LINK = re.compile(r"\]\((?!https?://)([^)#]+)(?:#[^)]*)?\)")


def pages_with(pattern: re.Pattern[str]) -> list[Path]:
    return [page for page in (DOCS.parent / "README.md", *PAGES) if pattern.search(page.read_text())]


@pytest.mark.parametrize("page", pages_with(_GENERATED), ids=lambda page: page.name)
def test_the_generated_parts_of_a_page_are_fresh(page: Path) -> None:
    text = page.read_text()
    assert refreshed(text) == text, "run `make docs`"


def test_every_generator_is_used_by_a_page() -> None:
    used = {name for page in PAGES for name in _GENERATED.findall(page.read_text())}
    assert used == set(GENERATORS)


def test_every_setting_is_documented() -> None:
    page = (DOCS / "settings.md").read_text()
    assert [row.variable for row in rows(ServerSettings, PREFIX) if f"`{row.variable}`" not in page] == []


def test_every_served_operation_is_documented() -> None:
    page = (DOCS / "operations.md").read_text()
    served = [operation for name in MODULES for operation in service(name).operations]
    assert served
    assert [operation for operation in served if f"`{operation}`" not in page] == []


def test_every_command_is_documented() -> None:
    page = (DOCS / "commands.md").read_text()
    assert [name for name in COMMANDS if f"## trainyard {name}\n" not in page] == []


@pytest.mark.parametrize("page", pages_with(_LINK), ids=lambda page: str(page.relative_to(DOCS.parent)))
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    targets = _LINK.findall(page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_page_is_reached_from_the_index() -> None:
    index = (DOCS / "index.md").read_text()
    pages = [str(page.relative_to(DOCS)) for page in PAGES if page.name != "index.md"]
    assert [page for page in pages if f"]({page})" not in index] == []

"""The generated parts of the documentation are up to date and complete, and links lead to existing files."""

import re
from pathlib import Path

from scripts.generate_docs import DOCS, GENERATORS, update_page
from tests.architecture.layers import SOURCE
from trainyard.cli.main import COMMANDS
from trainyard.foundation.settings import setting_rows
from trainyard.server.services.registry import MODULES, service
from trainyard.server.settings import PREFIX, ServerSettings

PAGES = sorted(DOCS.rglob("*.md"))

_GENERATED = re.compile(r"<!-- generated: (\w+) -->")
_LINK = re.compile(r"\]\((?!https?://)([^)#]+)(?:#[^)]*)?\)")
_PICTURE = re.compile(r'src(?:set)?="(?!https?://)([^"]+)"')


def pages_with(pattern: re.Pattern[str]) -> list[Path]:
    return [page for page in (DOCS.parent / "README.md", *PAGES) if pattern.search(page.read_text())]


def test_the_generated_parts_of_every_page_are_up_to_date() -> None:
    texts = {page.name: page.read_text() for page in pages_with(_GENERATED)}
    assert texts
    assert [name for name, text in texts.items() if update_page(text) != text] == [], "run `make docs`"


def test_every_generator_is_used_by_a_page() -> None:
    used = {name for page in PAGES for name in _GENERATED.findall(page.read_text())}
    assert used == set(GENERATORS)


def test_every_setting_is_documented() -> None:
    page = (DOCS / "settings.md").read_text()
    assert [row.variable for row in setting_rows(ServerSettings, PREFIX) if f"`{row.variable}`" not in page] == []


def test_every_served_operation_is_documented() -> None:
    page = (DOCS / "operations.md").read_text()
    served = [operation for name in MODULES for operation in service(name).operations]
    assert served
    assert [operation for operation in served if f"`{operation}`" not in page] == []


def test_every_command_is_documented() -> None:
    page = (DOCS / "reference" / "cli.md").read_text()
    assert [name for name in COMMANDS if f"## trainyard {name}\n" not in page] == []


def test_every_link_to_a_file_leads_somewhere() -> None:
    links = [
        (page, target)
        for pattern in (_LINK, _PICTURE)
        for page in pages_with(pattern)
        for target in pattern.findall(page.read_text())
    ]
    assert links
    broken = [(page, target) for page, target in links if not (page.parent / target).exists()]
    assert [f"{page.relative_to(DOCS.parent)} links to {target}" for page, target in broken] == []


def test_every_file_in_the_glossary_exists() -> None:
    named = re.findall(r"`([\w/]+\.py)`", (DOCS / "contributing" / "glossary.md").read_text())
    assert len(named) > 50
    assert [path for path in named if not (SOURCE / path).exists()] == []


def test_every_page_is_reached_from_the_index() -> None:
    index = (DOCS / "index.md").read_text()
    pages = [str(page.relative_to(DOCS)) for page in PAGES if page.name != "index.md"]
    assert [page for page in pages if f"]({page})" not in index] == []

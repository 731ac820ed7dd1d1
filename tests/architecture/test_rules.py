"""Every rule on tensors has a file and a page of its own."""

import re
from pathlib import Path

from scripts.generate_docs import DOCS
from trainyard.insight.rules import debugger
from trainyard.insight.rules.catalog import RULES

FOLDER = Path(debugger.__file__).parent
SECTIONS = ("## When it fires", "## Parameters", "## What it evaluates", "## What to do")


def file_name(rule: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", rule).lower()


def test_every_rule_has_a_file_of_its_own() -> None:
    files = {rule: kind.__module__ for rule, kind in RULES.items()}
    assert files == {rule: f"{debugger.__name__}.{file_name(rule)}" for rule in RULES}


def test_every_rule_has_a_page_that_says_when_it_fires_and_names_its_parameters() -> None:
    missing = []
    for rule, kind in RULES.items():
        page = (DOCS / "rules" / f"{rule}.md").read_text()
        missing += [rule] * (not page.startswith(f"# {rule}\n"))
        missing += [f"{rule}: {section}" for section in SECTIONS if f"\n{section}\n" not in page]
        missing += [f"{rule}: `{each.name}`" for each in kind.parameters if f"`{each.name}`" not in page]
    assert missing == []


def test_every_file_of_the_folder_is_a_rule_of_the_catalog() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert files == {file_name(rule) for rule in RULES}


def test_every_page_is_of_a_rule_but_for_the_table_of_all() -> None:
    assert {page.stem for page in (DOCS / "rules").glob("*.md")} - {"table"} == set(RULES)

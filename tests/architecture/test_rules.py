"""Every rule on tensors has a file and a page of its own, every rule on profiles a file and a section of a page."""

import re
from pathlib import Path

from scripts.generate_docs import DOCS, GENERATORS
from trainyard.insight.rules import debugger, profiler
from trainyard.insight.rules.catalog import RULES
from trainyard.insight.rules.profiler.catalog import PROFILER_RULES

FOLDER = Path(debugger.__file__).parent
PROFILER_FOLDER = Path(profiler.__file__).parent
# What the rules on profiles share.
SHARED = {"catalog", "contract", "patience", "robust_statistics", "training_samples", "training_steps", "waits"}
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


def test_every_rule_on_profiles_has_a_file_of_its_own() -> None:
    files = {path.stem for path in PROFILER_FOLDER.glob("*.py")} - {"__init__"}
    assert files == {file_name(rule) for rule in PROFILER_RULES} | SHARED
    modules = {rule: kind.__module__ for rule, kind in PROFILER_RULES.items()}
    assert modules == {rule: f"{profiler.__name__}.{file_name(rule)}" for rule in PROFILER_RULES}


def test_every_rule_on_profiles_has_a_section_that_says_when_it_triggers_and_how_it_differs_from_awss() -> None:
    _, *sections = re.split(r"^## (?=\w+$)", (DOCS / "profiler" / "rules.md").read_text(), flags=re.MULTILINE)
    texts = {name: " ".join(text.split()) for name, text in (section.split("\n", 1) for section in sections)}
    assert set(PROFILER_RULES) <= set(texts)
    for rule in PROFILER_RULES:
        assert "**It triggers**" in texts[rule] or "never triggers" in texts[rule], rule
        assert "**AWS's rule**" in texts[rule], rule
        if f"profiler_parameters_{rule}" in GENERATORS:
            assert f"<!-- generated: profiler_parameters_{rule} -->" in texts[rule], rule

"""Checks what a page offers to people who cannot see it, see little of it, or use no mouse."""

import importlib.util
from functools import cache
from pathlib import Path

from tests.browser.chromium import Page

# What WCAG 2.1 requires at level AA. Rules of best practice are a matter of taste.
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]


def accessibility_problems(page: Page) -> list[str]:
    """Return what axe finds wrong with the page as it is shown now, one line for each element."""
    page.evaluate(_axe())
    found = page.evaluate(f"axe.run(document, {{runOnly: {_RULES}}}).then((found) => found.violations)")
    return [
        f"{violation['id']}: {node['html'][:200]}: {' '.join(node.get('failureSummary', '').split())}"
        for violation in found
        for node in violation["nodes"]
    ]


@cache
def _axe() -> str:
    found = importlib.util.find_spec("axe_core_python")
    assert found is not None, "the extra `dev` installs it"
    assert found.submodule_search_locations
    return (Path(found.submodule_search_locations[0]) / "axe.min.js").read_text()

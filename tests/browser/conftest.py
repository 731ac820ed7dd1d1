"""The browser of a module of tests. Without Chromium, all of them are skipped."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import CHROMIUM, Browser, start_browser

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHROMIUM is not None:
        return
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.skip(reason="this machine has no Chromium"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with start_browser(tmp_path_factory.mktemp("browser")) as started:
        yield started

"""Pages saved as one HTML file, opened without a yard."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.accessibility import accessibility_problems
from tests.browser.chromium import Browser, Page
from tests.browser.dashboard import sign_in
from tests.system.fuzz.world import User
from tests.system.trainees import Trainee
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, running_yard

SCRIPT = """
import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(20):
    loss = nn.functional.mse_loss(model(torch.ones(4, 4)), torch.zeros(4, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
HOOK = {"S3OutputPath": "s3://data/tensors", "CollectionConfigurations": [{"CollectionName": "weights"}]}


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("saved") / "yard") as running:
        key = running.credentials
        user = User(running.http, key.account, "admin", key.access_key_id, key.secret_access_key)
        told = Trainee(user).prepare().run("kept", SCRIPT, DebugHookConfig=HOOK, Environment={"OMP_NUM_THREADS": "1"})
        assert told["TrainingJobStatus"] == "Completed", told
        yield running


@pytest.fixture
def page(browser: Browser, yard: RunningYard) -> Page:
    """The debugger of a job: charts, a tree, and fields that a person has changed."""
    opened = sign_in(browser, yard)
    opened.open_url(f"{yard.http}/-/training/kept/debugger")
    opened.wait_until("document.querySelectorAll('#map canvas, #tensor-curve canvas').length === 4")
    # A chart has a canvas before it has values.
    opened.wait_until(
        f"import({static_file('charts/surface.js')}).then(({{chartsByElement}}) =>"
        "[...chartsByElement().values()].every(({options}) => options.table().rows.length > 0))"
    )
    opened.click("#filter")
    opened.type("weight")
    return opened


def static_file(path: str) -> str:
    """Return an expression for the address of a file of the dashboard, of the version that the page has."""
    return f"document.querySelector('script[type=module]').src.replace(/static\\/([^/]+)\\/.*/, 'static/$1/{path}')"


def colour_of(page: Page, selector: str) -> str:
    """The colour in the middle of the picture that is shown."""
    page.wait_until(f"[...document.querySelectorAll('{selector}')].every((image) => image.complete)")
    colour: str = page.evaluate(
        "(() => {"
        f"const image = [...document.querySelectorAll('{selector}')].find((each) => each.offsetWidth > 0);"
        "const canvas = Object.assign(document.createElement('canvas'),"
        "{width: image.naturalWidth, height: image.naturalHeight}); const context = canvas.getContext('2d');"
        "context.drawImage(image, 0, 0); const found = new Map();"
        "const data = context.getImageData(0, 0, canvas.width, canvas.height).data;"
        "for (let at = 0; at < data.length; at += 4) if (data[at + 3] === 255) {"
        "const name = data.slice(at, at + 3).join(); found.set(name, (found.get(name) ?? 0) + 1); }"
        "return [...found].sort((one, other) => other[1] - one[1])[0][0]; })()"
    )
    return colour


def test_a_saved_page_looks_the_same_without_yard_or_scripts(
    browser: Browser, page: Page, yard: RunningYard, tmp_path: Path
) -> None:
    text = page.evaluate(f"import({static_file('export.js')}).then((found) => found.pageAsHtml())")
    secret = page.evaluate("document.querySelector('meta[name=csrf-token]').content")
    assert secret not in text
    assert "<script" not in text
    assert page.evaluate("document.documentElement.dataset.theme") == "auto"
    assert set(re.findall(r'(?:src|href)="((?!data:|#)[^":]*:)', text)) == {"http:"}

    file = tmp_path / "page.html"
    file.write_text(text)
    saved = browser.open_page()
    colours, backgrounds = set(), set()
    for scheme in ("light", "dark"):
        saved.show_as(width=1280, scheme=scheme)
        saved.open(file)
        assert saved.evaluate("document.title") == page.evaluate("document.title")
        assert saved.evaluate("document.querySelector('h1').innerText") == "kept"
        assert saved.evaluate("document.querySelector('#filter').value") == "weight"
        assert saved.evaluate("document.querySelector('#filter').disabled")
        label = saved.evaluate("document.querySelector('#map img').alt")
        assert label == "Norm (L2) of Weights, layers over steps"
        boxes = [
            each.evaluate(
                "(({width, height}) => [width, height])(document.querySelector('#map').getBoundingClientRect())"
            )
            for each in (page, saved)
        ]
        assert boxes[1][0] == pytest.approx(boxes[0][0], abs=2)
        assert boxes[1][1] == pytest.approx(boxes[0][1], abs=40)  # and the values in words below
        colours.add(colour_of(saved, "#tensor-curve img"))
        backgrounds.add(saved.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
        # The curve as a table, for who cannot see it.
        saved.click("#tensor-curve .saved-values summary")
        saved.wait_until("document.querySelectorAll('#tensor-curve .saved-values td').length === 40")
        links = saved.evaluate("[...document.querySelectorAll('nav.tabs a')].map((link) => link.href)")
        assert f"{yard.http}/-/training/kept" in links
        assert accessibility_problems(saved) == []
    assert len(colours) == len(backgrounds) == 2
    saved.show_as(width=390)
    assert saved.evaluate("document.documentElement.scrollWidth") <= 390
    assert [url for url in saved.requested if not url.startswith(("file:", "data:"))] == []
    assert saved.logged == []


def test_a_page_that_still_loads_is_saved_once_it_is_complete(
    browser: Browser, yard: RunningYard, tmp_path: Path
) -> None:
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page = sign_in(browser, yard)
    # The values of the charts come only when the test lets them.
    page.run_in_new_documents(
        "const held = new Promise((resolve) => (window.release = resolve)); const original = window.fetch;"
        "window.fetch = async (address, ...rest) => {"
        "if (String(address).includes('/statistics')) { window.asked = (window.asked ?? 0) + 1; await held; }"
        "return original(address, ...rest); };"
    )
    page.open_url(f"{yard.http}/-/training/kept/debugger")
    page.wait_until("window.asked >= 2")
    page.click("details.menu summary")
    page.click("[data-opens=export]")
    page.wait_until("document.querySelector('.toast')?.innerText.includes('still loading')")
    assert list(tmp_path.iterdir()) == []
    page.evaluate("release()")
    page.wait_until("document.querySelector('.toasts').innerText.includes('Saved as kept-Trainyard-')")
    file = eventually(lambda: next((each for each in tmp_path.glob("*.html") if each.stat().st_size), None))
    assert file is not None
    assert file.read_text().count("<summary>Values of") == 2


def test_the_menu_saves_the_page_under_its_title(browser: Browser, page: Page, tmp_path: Path) -> None:
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.click("details.menu summary")
    page.click("[data-opens=export]")
    page.wait_until("document.querySelector('.toast')?.innerText.includes('Saved as kept-Trainyard-')")

    def find_file() -> Path | None:
        return next((file for file in tmp_path.glob("kept-Trainyard-*.html") if file.stat().st_size), None)

    found = eventually(find_file)
    assert found is not None
    assert found.read_text().endswith("</html>\n")

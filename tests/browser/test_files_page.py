"""The files of a job, in a real browser: what it read and wrote, looked into without being downloaded."""

import json
from collections.abc import Iterator
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from tests.browser.accessibility import accessibility_problems
from tests.browser.chromium import Browser, Page
from tests.browser.dashboard import assert_is_quiet, sign_in
from tests.system.yards import trainee_of
from trainyard.testing.yard import RunningYard, running_yard

JOB = "with-files"
HOSTILE = "<img src=x onerror=alert(1)>\u202egpj.txt"
SCRIPT = f"""
import json, os, struct, zlib

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb" if isinstance(content, bytes) else "w") as file:
        file.write(content)

model, checkpoints = "/opt/ml/model/", "/opt/ml/checkpoints/"
tensor = lambda n: {{"dtype": "F32", "shape": [4, 4], "data_offsets": [n * 64, n * 64 + 64]}}
header = json.dumps({{f"layers.{{n}}.weight": tensor(n) for n in range(20)}}).encode()
write(model + "model.safetensors", struct.pack("<Q", len(header)) + header + bytes(20 * 64))
write(model + "deep/er/config.json", '{{"layers": 12}}')
write(model + {HOSTILE!r}, "<script>alert(1)</script> \\x1b[31mred \\u202e end")
head, pixels = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 4, 8, 0, 0, 0, 0)), chunk(b"IDAT", zlib.compress(bytes(36)))
write(checkpoints + "curve.png", b"\\x89PNG\\r\\n\\x1a\\n" + head + pixels + chunk(b"IEND", b""))
write(checkpoints + "evil.png", '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>')
write(checkpoints + "scores.csv", "id,score\\n" + "".join(f"{{n}},{{n / 10}}\\n" for n in range(1000)))
write(checkpoints + "long.txt", "".join(f"line {{n}}\\n" for n in range(40_000)))
write(checkpoints + "empty", "")
import torch
torch.save({{"state": {{"weight": torch.zeros(3, 5)}}, "epoch": 7}}, model + "model.pt")
"""
OPEN = "document.querySelector('.file-item[aria-selected=true] .file-name')?.textContent"
PREVIEW = "document.getElementById('preview').innerText"


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("files") / "yard") as running:
        trainee = trainee_of(running).prepare()
        prefix = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{trainee.bucket}/train"}
        ended = trainee.run(
            JOB,
            SCRIPT,
            CheckpointConfig={"S3Uri": f"s3://{trainee.bucket}/checkpoints/{JOB}"},
            InputDataConfig=[{"ChannelName": "train", "DataSource": {"S3DataSource": prefix}}],
        )
        assert ended["TrainingJobStatus"] == "Completed", trainee.lines(JOB)
        yield running


@pytest.fixture(scope="module")
def page(browser: Browser, yard: RunningYard) -> Page:
    page = sign_in(browser, yard)
    page.logged.clear()
    return page


def open_files(page: Page, yard: RunningYard, *, width: int = 1280, scheme: str = "light", **state: str) -> None:
    page.show_as(width=width, scheme=scheme)
    page.open_url(f"{yard.http}/-/training/{JOB}/files?{urlencode(state)}")
    if state:
        page.wait_until("document.querySelector('.preview-uri, #preview .notice') !== null")


def test_the_tree_is_walked_with_the_keyboard(page: Page, yard: RunningYard) -> None:
    open_files(page, yard)
    focused = "document.activeElement.querySelector('.file-name')?.textContent"
    page.wait_until("document.querySelector('[role=treeitem][tabindex=\"0\"] .file-name') !== null")
    page.evaluate("document.querySelector('[role=treeitem][tabindex=\"0\"]').focus()")
    assert page.evaluate(focused) == "train"
    page.press("ArrowRight")
    page.wait_until("document.body.innerText.includes('a.csv')")
    for _ in range(2):
        page.press("ArrowDown")
    assert page.evaluate(focused) == "a.csv"
    page.press("Enter")
    page.wait_until(f"{PREVIEW}.includes('s3://data/train/a.csv')")
    assert page.evaluate("new URLSearchParams(location.search).get('path')") == "/a.csv"
    page.press("ArrowLeft")
    assert page.evaluate(focused) == "train"
    page.press("ArrowLeft")
    page.wait_until("document.querySelector('[aria-expanded=true]') === null")
    page.press("Enter")
    page.wait_until(f"{PREVIEW}.includes(\"aws s3 cp --recursive 's3://data/train'\")")
    page.wait_until("document.body.innerText.includes('deep')")
    page.press("ArrowDown")
    assert page.evaluate(focused) == "deep"
    page.press("Enter")
    page.wait_until(f"{PREVIEW}.includes('s3://data/train/deep/')")
    assert page.evaluate("location.search") == ""


def test_an_archive_is_looked_into_and_a_link_leads_to_a_file_in_it(page: Page, yard: RunningYard) -> None:
    open_files(page, yard, place="model", member="deep/er/config.json")
    page.wait_until(f"{PREVIEW}.includes('\"layers\": 12')")
    page.wait_until(f"{OPEN} === 'config.json'")
    hostile = "[...document.querySelectorAll('.file-name')].find((each) => each.textContent.includes('img'))"
    page.wait_until(f"{hostile} !== undefined")
    page.evaluate(f"{hostile}.click()")
    shown = page.wait_until(f"{PREVIEW}.includes('red') && {PREVIEW}")
    assert "<script>alert(1)</script> \u241b[31mred ⟨U+202E⟩ end" in shown
    assert "<img src=x onerror=alert(1)>⟨U+202E⟩gpj.txt" in shown
    assert page.evaluate("document.querySelectorAll('#preview img, #preview script').length") == 0
    page.evaluate("history.back()")
    page.wait_until(f"{PREVIEW}.includes('\"layers\": 12')")
    assert accessibility_problems(page) == []


def test_each_kind_of_file_has_its_preview(page: Page, yard: RunningYard) -> None:
    open_files(page, yard, place="model", member="model.safetensors")
    page.wait_until(f"{PREVIEW}.includes('20 tensors')")
    page.click(".preview-filter")
    page.type("layers.19")
    page.wait_until("document.querySelectorAll('#preview tbody tr').length === 1")
    assert "layers.19.weight" in page.evaluate("document.querySelector('#preview tbody').innerText")

    open_files(page, yard, place="model", member="model.pt")
    shown = page.wait_until(f"{PREVIEW}.includes('state.weight') && {PREVIEW}")
    assert ("epoch" in shown, "float" in shown) == (True, True)

    open_files(page, yard, place="checkpoints", path="/scores.csv")
    page.wait_until("document.querySelectorAll('#preview tbody tr').length === 200")
    assert "The first 200 rows." in page.evaluate(PREVIEW)

    open_files(page, yard, place="checkpoints", path="/curve.png")
    assert page.wait_until("document.querySelector('.preview-picture')?.naturalWidth") == 8

    open_files(page, yard, place="checkpoints", path="/evil.png")
    page.wait_until(f"{PREVIEW}.includes('<script>')")
    assert page.evaluate("document.querySelector('.preview-picture')") is None

    open_files(page, yard, place="checkpoints", path="/empty")
    page.wait_until(f"{PREVIEW}.includes('The file is empty')")

    open_files(page, yard, place="checkpoints", path="/long.txt")
    page.wait_until(f"{PREVIEW}.includes('line 0')")
    assert not page.evaluate("document.querySelector('.preview-text').textContent.includes('line 39999')")
    while page.evaluate("document.querySelector('#preview p button') !== null"):
        before = page.evaluate("document.querySelector('.preview-text').textContent.length")
        page.click("#preview p button")
        page.wait_until(f"document.querySelector('.preview-text').textContent.length > {before}")
        page.wait_until("!document.querySelector('#preview p button')?.disabled")
    lines = page.evaluate("document.querySelector('.preview-text').textContent").splitlines()
    assert lines == [f"line {number}" for number in range(40_000)]
    assert_is_quiet(page, yard)


def test_a_file_never_becomes_a_page_of_the_yard(page: Page, yard: RunningYard) -> None:
    found = page.evaluate(
        "Promise.all(['picture', 'download'].flatMap((route) => ['/curve.png', '/evil.png'].map(async (path) => {"
        f"const answer = await fetch(`/-/training/{JOB}/files/${{route}}?place=checkpoints&path=${{path}}`);"
        "const [type, as, sniffs] = ['content-type', 'content-disposition', 'x-content-type-options'].map("
        "(name) => answer.headers.get(name) ?? ''); return {status: answer.status, type, as, sniffs}; })))"
    )
    assert [each["status"] for each in found] == [200, 404, 200, 200]
    assert [each["type"].partition(";")[0] for each in found] == [
        "image/png",
        "application/json",
        "application/octet-stream",
        "application/octet-stream",
    ]
    assert all(each["as"].startswith("attachment") for each in found if each["status"] == 200)
    assert {each["sniffs"] for each in found} == {"nosniff"}
    page.logged.clear()


def test_what_is_missing_is_said(page: Page, yard: RunningYard) -> None:
    open_files(page, yard, place="checkpoints", path="/nothing.txt")
    assert page.wait_until("document.querySelector('#preview [role=alert]')?.innerText")
    open_files(page, yard, place="elsewhere", path="/x")
    assert 'no files named "elsewhere"' in page.wait_until("document.querySelector('#preview [role=alert]')?.innerText")
    page.logged.clear()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_and_fits_a_phone(page: Page, yard: RunningYard, scheme: str) -> None:
    open_files(page, yard, place="model", member=HOSTILE, width=390, scheme=scheme)
    page.wait_until(f"{PREVIEW}.includes('red')")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert accessibility_problems(page) == []


def test_nobody_sees_the_files_without_signing_in(yard: RunningYard) -> None:
    address = f"{yard.http}/-/training/{JOB}/files/preview?place=model"
    with pytest.raises(OSError, match="401"):
        urlopen(Request(address, headers={"accept": "application/json"}))


def test_the_answers_are_json(page: Page) -> None:
    listed = page.evaluate(f"fetch('/-/training/{JOB}/files/list?place=input:train').then((answer) => answer.text())")
    assert [each["name"] for each in json.loads(listed)["entries"]] == ["deep", "a.csv"]

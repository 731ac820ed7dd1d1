"""The listings of the documents that describe the system run, as they are with the sagemaker SDK and with ours."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conformance.conftest import PROJECT, TRAINYARD, Person
from tests.conformance.environments import interpreter
from tests.conformance.listings import PAGES, program
from trainyard.testing.yard import RunningYard

# What the listings expect to be there, by the image that they name.
IMAGES: Mapping[str, str] = {"my-pytorch": PROJECT, "tensorflow-training": "tensorflow"}
FILE_SYSTEM = "fs-0123456789abcdef0"


@pytest.fixture
def reviews(yard: RunningYard, tmp_path: Path) -> Path:
    """What lies in the file system that listings name."""
    folder = tmp_path / "file-system"
    file = folder / "mnt" / "data" / "reviews.csv"
    file.parent.mkdir(parents=True)
    file.write_text("5,good")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (yard.home.root / "file_systems.toml").write_text(f'[file_systems]\n"{FILE_SYSTEM}" = "{folder}"\n')
    return file


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "package", "environment"),
    [
        pytest.param(
            page,
            package,
            environment,
            id=f"{page.stem}-{package}",
        )
        for page in PAGES
        for package, environment in (("sagemaker", "main"), ("trainyard", PROJECT))
    ],
)
def test_a_listing_runs_and_does_what_its_document_says(
    page: Path, package: str, environment: str, person: Person, reviews: Path
) -> None:
    person.trainyard("connect", "--yes")
    for image, name in IMAGES.items():
        person.trainyard("images", "map", image, sys.executable if name == PROJECT else str(interpreter(name)))
    aws = interpreter("main")
    exports = {
        **person.bare_environment(),
        "LISTING_AWS": shlex.join([str(aws), str(aws.with_name("aws"))]),
        "LISTING_TRAINYARD": str(TRAINYARD),
    }
    listing = program(page, package)
    file = person.home / "listing.py"
    file.write_text(listing.text)
    said = person.run_file(file, environment, exports)
    assert [line for line in listing.shows if line not in said] == [], said


def test_a_change_that_does_not_fit_its_listing_is_found(tmp_path: Path) -> None:
    page = tmp_path / "000_page.md"
    blocks = {"quoted": "a = 1", "after": "", "shows": "", "diff": "# Why.\n-b = 1\n+b = 2"}
    page.write_text("\n".join(f"```{kind}\n{text}\n```" for kind, text in blocks.items()))
    with pytest.raises(AssertionError, match="to be mended once, but there 0 times"):
        program(page, "sagemaker")


def test_only_the_package_is_renamed_in_a_listing(tmp_path: Path) -> None:
    page = tmp_path / "000_page.md"
    listing = 'import sagemaker\nfrom sagemaker.x import y\nsagemaker_session = y("u:1-sagemaker")'
    page.write_text(f"```quoted\n{listing}\n```\n```after\n```\n```shows\n```\n")
    renamed = 'import trainyard\nfrom trainyard.x import y\nsagemaker_session = y("u:1-sagemaker")'
    assert renamed in program(page, "trainyard").text

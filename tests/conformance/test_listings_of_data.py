"""Nothing that the documents show of data, checkpoints, spot, incremental and distributed training is left out."""

import hashlib
import tomllib
from pathlib import Path

import pytest

from tests.conformance.conftest import FLOWS
from tests.conformance.listings import PAGES, quoted_lines

SEEDS = Path(__file__).parent / "seeds"
LISTINGS = tomllib.loads((SEEDS / "data_listings.toml").read_text())["listing"]

# What the document on simple-sagemaker explains of its command line, of which it shows no listing.
FLAGS = (
    *("-p", "-t", "-o", "--download_state", "--iis", "--it", "-d", "-v", "--no_spot"),
    *("--cmd_line", "--ic", "--md", "--iit"),
)
WORDS = ("shell", "$SSM_INSTANCE_STATE", "--resume")


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: f"{listing['page']}: {listing['begins'][:40]}")
def test_a_listing_is_quoted_word_for_word(listing: dict[str, str | int]) -> None:
    (page,) = (page for page in PAGES if page.stem == listing["page"])
    count = int(listing["lines"])
    runs = [lines[start : start + count] for lines in quoted_lines(page) for start in range(len(lines) - count + 1)]
    assert listing["sha256"] in {hashlib.sha256("\n".join(run).encode()).hexdigest() for run in runs}


@pytest.mark.parametrize("word", [*(f'"{flag}"' for flag in FLAGS), *WORDS])
def test_what_is_explained_of_a_command_line_is_used(word: str) -> None:
    assert word in (FLOWS / "state_with_ssm.py").read_text()

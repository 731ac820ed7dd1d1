"""The page with the charts of a study, in a real browser."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import CHROMIUM
from tests.unit.tuning_answers import description, trial
from trainyard._sdk.tuning.plots import Plots, study_of


def trials(*, has_words: bool) -> list[dict[str, Any]]:
    found = []
    for number in range(1, 13):
        rate, word = 10.0 ** -(1 + number % 5), "adam" if number % 2 and has_words else "sgd"
        tuned = {"lr": repr(rate), "layers": str(number % 8 + 1), "opt": f'"{word}"'}
        found.append(trial(number, 0.9 - abs(rate - 0.001) - 0.01 * (number % 3), TunedHyperParameters=tuned))
    return found


@pytest.mark.flow
@pytest.mark.parametrize("axes", [("lr", "layers"), ("lr", "opt")], ids=["of numbers", "with words"])
def test_every_chart_of_a_page_is_drawn(tmp_path: Path, axes: tuple[str, str]) -> None:
    plots = Plots(study_of(description(), trials(has_words="opt" in axes)))
    plots.save(tmp_path / "all.html")
    plots.save(tmp_path / "contour.html", plots.contour(*axes))
    for page in ("all.html", "contour.html"):
        said = spoken(tmp_path / page, profile=tmp_path / "profile")
        assert "document idle" in said, said
        assert "Uncaught" not in said


def spoken(page: Path, *, profile: Path) -> str:
    """What a page says to the console while it is drawn."""
    assert CHROMIUM is not None, "without it these tests are skipped"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=15000"]
    run = subprocess.run(
        [CHROMIUM, *options, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return "\n".join(line for line in run.stderr.splitlines() if "CONSOLE" in line)

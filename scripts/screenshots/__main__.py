"""Takes a picture of each page of the dashboard, in light and in dark, from a yard that runs real jobs.

python -m scripts.screenshots                 all pictures, into docs/dashboard/
python -m scripts.screenshots jobs profiler   some of them
python -m scripts.screenshots --home DIR      with the jobs of an earlier run, which stay in DIR
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.screenshots.shown_jobs import (
    FAILED,
    INTERRUPTED,
    PROFILED,
    RUNNING,
    STOPPED,
    STUDY,
    VARIANTS,
    run_jobs,
    running_job,
)
from tests.browser.chromium import Browser, Page, start_browser
from tests.browser.dashboard import sign_in
from trainyard import Session
from trainyard.testing.yard import RunningYard, running_yard

PICTURES = Path(__file__).parents[2] / "docs" / "dashboard"
WIDTH, HEIGHT = 1280, 860
# Curves that come live, and images that are decoded after the page is complete.
_SETTLE_S = 2.0


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture: the name of its files, the address of the page, and what the page shows once it is complete."""

    name: str
    address: str
    shows: str = "main"
    height: int = HEIGHT


PAGES: Sequence[Picture] = (
    Picture("jobs", "/-/jobs", "table tbody tr"),
    Picture("job", f"/-/training/{PROFILED}", "main canvas"),
    Picture("failed-job", f"/-/training/{FAILED}"),
    Picture("interrupted-job", f"/-/training/{INTERRUPTED}"),
    Picture("running-job", f"/-/training/{RUNNING}", "main canvas"),
    Picture("logs", f"/-/training/{PROFILED}/logs"),
    Picture("files", f"/-/training/{PROFILED}/files?place=model&member=digits.pt"),
    Picture("definition", f"/-/training/{PROFILED}/definition"),
    Picture("clone", f"/-/training/{PROFILED}/clone"),
    Picture("debugger", f"/-/training/{STOPPED}/debugger", "main canvas"),
    Picture("profiler", f"/-/training/{PROFILED}/profiler", ".verdict-summary", height=1100),
    Picture("trace", f"/-/training/{PROFILED}/profiler?view=traces", ".trace-legend li", height=1100),
    Picture("tuning", f"/-/tuning/{STUDY}", "main canvas", height=1400),
    Picture("compare", f"/-/compare?jobs={','.join(VARIANTS)}", "main canvas"),
    Picture("admin", "/-/admin/storage"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *(each.name for each in PAGES)], help="default: all")
    parser.add_argument("--home", type=Path, help="the folder of the yard; jobs that it has are not run again")
    parser.add_argument("--output", type=Path, default=PICTURES, help="the folder of the pictures")
    arguments = parser.parse_args()
    wanted = [each for each in PAGES if not arguments.names or each.name in arguments.names]
    with tempfile.TemporaryDirectory() as folder, running_yard(arguments.home or Path(folder, "yard")) as yard:
        os.environ.update(yard.environment())
        session = Session()
        if not session.api.call("sagemaker", "ListTrainingJobs")["TrainingJobSummaries"]:
            run_jobs(session)
        with running_job(session), start_browser(Path(folder)) as browser:
            for picture in wanted:
                take(browser, yard, picture, folder=arguments.output)


def take(browser: Browser, yard: RunningYard, picture: Picture, *, folder: Path) -> None:
    """Open a page in light and in dark, and save both pictures."""
    page = sign_in(browser, yard)
    for scheme in ("light", "dark"):
        page.show_as(width=WIDTH, height=picture.height, scheme=scheme)
        page.open_url(yard.http + picture.address)
        wait_until_complete(page, picture)
        page.save_picture(folder / f"{picture.name}-{scheme}.png")
    print(picture.name)


def wait_until_complete(page: Page, picture: Picture) -> None:
    page.wait_until(f"document.querySelector({picture.shows!r}) !== null")
    page.wait_until("document.querySelector('main [aria-busy=true]') === null")
    time.sleep(_SETTLE_S)
    page.wait_until_drawn()


if __name__ == "__main__":
    main()

"""The page of a processing job, in a real browser: what it says of a job that ends, and of one that fails."""

from collections.abc import Iterator

import pytest

from tests.browser.accessibility import accessibility_problems
from tests.browser.chromium import Browser
from tests.browser.dashboard import assert_is_quiet, sign_in
from tests.system.test_processing import Processes, output
from tests.system.yards import trainee_of
from trainyard.testing.yard import RunningYard, running_yard

HOSTILE = "<img src=x onerror=alert(1)>"
SCRIPT = f"""
import pathlib, sys
print("cleaning", flush=True)
pathlib.Path("/opt/ml/output/message").write_text({HOSTILE!r})
if len(sys.argv) == 1:
    raise ValueError("nothing to clean")
"""
TEXT = "document.querySelector('main').innerText"


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("processing") / "yard") as running:
        processes = Processes(trainee_of(running).user)
        processes.user.client("s3").create_bucket(Bucket="data")
        outputs = [output("s3://data/out", "/opt/ml/processing/out")]
        processes.create("clean", SCRIPT, outputs=outputs)
        without_arguments = {"ImageUri": "sagemaker-scikit-learn:latest"} | {
            "ContainerEntrypoint": ["python3", "/opt/ml/processing/code/run.py"]
        }
        processes.create("fails", SCRIPT, AppSpecification=without_arguments)
        assert processes.end_of("clean")["ProcessingJobStatus"] == "Completed", processes.lines("clean")
        assert processes.end_of("fails")["ProcessingJobStatus"] == "Failed", processes.lines("fails")
        yield running


def test_a_processing_job_has_a_page_with_its_message_data_failure_and_log(browser: Browser, yard: RunningYard) -> None:
    page = sign_in(browser, yard)
    page.wait_until(f"{TEXT}.includes('clean')")
    page.evaluate("document.querySelector('a[href=\"/-/processing/clean\"]').click()")
    page.wait_until(f"{TEXT}.includes('s3://data/out')")
    shown = page.evaluate(TEXT)
    assert HOSTILE in shown
    assert "Completed" in shown
    assert accessibility_problems(page) == []
    page.open_url(f"{yard.http}/-/processing/fails")
    page.wait_until(f"{TEXT}.includes('nothing to clean')")
    assert accessibility_problems(page) == []
    page.evaluate("document.getElementById('failure-log').click()")
    page.wait_until(f"{TEXT}.includes('ValueError: nothing to clean')")
    assert_is_quiet(page, yard)

import pytest

from tests.unit.cli.conftest import Trainyard
from tests.unit.drilling.runs import losses, run
from trainyard.cli.drill import exit_code_of, told
from trainyard.drilling.drill import Drilled
from trainyard.drilling.verdict import Finding, Verdict


@pytest.mark.parametrize(
    ("finding", "code"),
    [
        (Finding.EXACT, 0),
        (Finding.WITHIN, 0),
        (Finding.DIFFERS, 1),
        (Finding.STARTED_OVER, 1),
        (Finding.NO_CONFIG, 1),
        (Finding.NO_CHECKPOINT, 1),
        (Finding.FAILED, 1),
        (Finding.TOO_SHORT, 7),
        (Finding.UNCLEAR, 7),
    ],
)
def test_each_finding_has_an_exit_code_for_scripts(finding: Finding, code: int) -> None:
    assert exit_code_of(Drilled(Verdict(finding, ""))) == code


def test_json_has_the_verdict_and_the_runs() -> None:
    done = Drilled(Verdict(Finding.EXACT, "The same.", ("So it was.",)), (run(losses(1, 3), losses(3, 9)),))
    answer = told(done)
    assert (answer["Finding"], answer["Resumes"], answer["Evidence"]) == ("resumes exactly", True, ["So it was."])
    (job,) = answer["Jobs"]
    assert (job["Interruptions"], job["TrainingTimeInSeconds"]) == (1, 20.0)


def test_a_tolerance_below_nothing_is_refused(trainyard: Trainyard) -> None:
    assert trainyard("drill", "mnist", "--tolerance", "-1").code == 2

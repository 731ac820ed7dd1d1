import pytest

from tests.unit._sdk.resume_drill.runs import losses, run
from tests.unit.cli.conftest import Trainyard
from trainyard._sdk.resume_drill.drill import DrillResult
from trainyard._sdk.resume_drill.verdict import ResumeOutcome, Verdict
from trainyard.cli.jobs.resume_drill import drill_shape, exit_code_of


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (ResumeOutcome.EXACT, 0),
        (ResumeOutcome.WITHIN, 0),
        (ResumeOutcome.DIFFERS, 1),
        (ResumeOutcome.STARTED_OVER, 1),
        (ResumeOutcome.NO_CONFIG, 1),
        (ResumeOutcome.NO_CHECKPOINT, 1),
        (ResumeOutcome.FAILED, 1),
        (ResumeOutcome.TOO_SHORT, 7),
        (ResumeOutcome.UNCLEAR, 7),
    ],
)
def test_each_outcome_has_an_exit_code_for_scripts(outcome: ResumeOutcome, code: int) -> None:
    assert exit_code_of(DrillResult(Verdict(outcome, ""))) == code


def test_json_has_the_verdict_and_the_runs() -> None:
    done = DrillResult(Verdict(ResumeOutcome.EXACT, "The same.", ("So it was.",)), (run(losses(1, 3), losses(3, 9)),))
    answer = drill_shape(done)
    assert (answer["Finding"], answer["Resumes"], answer["Evidence"]) == ("resumes exactly", True, ["So it was."])
    (job,) = answer["Jobs"]
    assert (job["Interruptions"], job["TrainingTimeInSeconds"]) == (1, 20.0)


def test_a_tolerance_below_nothing_is_refused(trainyard: Trainyard) -> None:
    assert trainyard("drill", "mnist", "--tolerance", "-1").code == 2

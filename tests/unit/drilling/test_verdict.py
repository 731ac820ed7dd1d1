import pytest

from tests.unit.drilling.runs import losses, run
from trainyard.drilling.models import Comparison
from trainyard.drilling.runs import Run
from trainyard.drilling.tensors import Distance
from trainyard.drilling.verdict import Finding, Verdict, judge, not_comparable, without_checkpoints
from trainyard.drilling.work import Work

WHOLE = run(losses(1, 9), metrics={"loss": 0.5})
AGAIN = run(losses(1, 5), losses(4, 9), metrics={"loss": 0.5})
WENT_ON = Work(False, "It went on.")
EQUAL = Comparison(2)


def verdict(
    again: Run = AGAIN, *, work: Work = WENT_ON, models: Comparison | None = EQUAL, tolerance: float = 0.0
) -> Verdict:
    return judge(WHOLE, again, work=work, models=models, tolerance=tolerance)


def test_one_that_went_on_to_the_same_model_resumes_exactly() -> None:
    found = verdict()
    assert found.finding is Finding.EXACT
    assert found.sentence == "The models are the same, in all of 2 files."
    assert found.evidence == ("It went on.", '"loss" ended as 0.5 in both.')


def test_the_same_model_does_not_hide_that_it_started_over() -> None:
    assert verdict(work=Work(True, "All again.")).finding is Finding.STARTED_OVER


@pytest.mark.parametrize(
    ("models", "finding", "words"),
    [
        (Comparison(1, Distance(0.5, "model.pt: w")), Finding.DIFFERS, "by up to 0.5 (model.pt: w)"),
        (Comparison(1, Distance(0.001, "model.pt: w")), Finding.WITHIN, "by up to 0.001"),
        (Comparison(3, others=("a.txt", "b.txt")), Finding.DIFFERS, "in a.txt and 1 more, which could not"),
    ],
)
def test_another_model_is_told_with_how_far_it_is_off(models: Comparison, finding: Finding, words: str) -> None:
    found = verdict(models=models, tolerance=0.01)
    assert found.finding is finding
    assert words in found.sentence


def test_without_a_model_the_metrics_decide() -> None:
    assert verdict(models=None).finding is Finding.EXACT
    off = run(losses(1, 5), losses(4, 9), metrics={"loss": 0.75})
    found = verdict(off, models=None)
    assert (found.finding, found.sentence) == (
        Finding.DIFFERS,
        "No model was saved; its metrics differ by up to 0.25.",
    )
    assert verdict(off, models=None, tolerance=0.25).finding is Finding.WITHIN
    assert '"loss" ended as 0.5, with the interruption as 0.75.' in found.evidence


def test_with_nothing_to_compare_nothing_is_claimed() -> None:
    bare = run(losses(1, 9))
    found = judge(bare, AGAIN, work=WENT_ON, models=None, tolerance=0.0)
    assert found.finding is Finding.UNCLEAR
    assert verdict(work=Work(None, "Silence.")).finding is Finding.UNCLEAR


def test_a_job_that_was_over_first_was_not_interrupted() -> None:
    found = verdict(run(losses(1, 9), seconds=1.25))
    assert (found.finding, found.sentence) == (
        Finding.TOO_SHORT,
        "It was over in 1.2 s; drill a job that takes longer.",
    )


def test_a_job_that_fails_after_the_interruption_does_not_resume() -> None:
    found = verdict(run(losses(1, 5), ["boom"], status="Failed", FailureReason="AlgorithmError: no key\nmore"))
    assert found.finding is Finding.FAILED
    assert found.sentence == "After the interruption it is Failed: AlgorithmError: no key"


def test_a_script_that_saves_nothing_cannot_resume() -> None:
    assert verdict(run(losses(1, 5), losses(1, 9), kept=0)).finding is Finding.NO_CHECKPOINT


def test_a_job_that_fails_without_an_interruption_cannot_be_judged() -> None:
    found = not_comparable(run(["boom"], status="Failed", FailureReason="AlgorithmError: no key"))
    assert found.finding is Finding.UNCLEAR
    assert "is Failed already, as mnist-drill: AlgorithmError: no key" in found.sentence


def test_a_job_without_checkpoints_is_told_what_to_do() -> None:
    found = without_checkpoints("mnist")
    assert found.finding is Finding.NO_CONFIG
    assert "checkpoint_s3_uri" in found.sentence

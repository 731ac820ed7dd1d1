import pytest

from tests.unit._sdk.resume_drill.runs import losses, run
from trainyard._sdk.resume_drill.evidence import ResumeEvidence
from trainyard._sdk.resume_drill.models import ModelComparison
from trainyard._sdk.resume_drill.runs import DrillRun
from trainyard._sdk.resume_drill.tensors import Distance
from trainyard._sdk.resume_drill.verdict import ResumeOutcome, Verdict, decide, not_comparable, without_checkpoints

WHOLE = run(losses(1, 9), metrics={"loss": 0.5})
AGAIN = run(losses(1, 5), losses(4, 9), metrics={"loss": 0.5})
RESUMED = ResumeEvidence(False, "It resumed.")
EQUAL = ModelComparison(2)


def verdict(
    again: DrillRun = AGAIN,
    *,
    evidence: ResumeEvidence = RESUMED,
    models: ModelComparison | None = EQUAL,
    tolerance: float = 0.0,
) -> Verdict:
    return decide(WHOLE, again, evidence=evidence, models=models, tolerance=tolerance)


def test_one_that_went_on_to_the_same_model_resumes_exactly() -> None:
    found = verdict()
    assert found.outcome is ResumeOutcome.EXACT
    assert found.sentence == "The models are the same, in all of 2 files."
    assert found.evidence == ("It resumed.", 'The last "loss" is 0.5 in both runs.')


def test_the_same_model_does_not_hide_that_it_started_over() -> None:
    assert verdict(evidence=ResumeEvidence(True, "All again.")).outcome is ResumeOutcome.STARTED_OVER


@pytest.mark.parametrize(
    ("models", "outcome", "words"),
    [
        (ModelComparison(1, Distance(0.5, "model.pt: w")), ResumeOutcome.DIFFERS, "by up to 0.5 (model.pt: w)"),
        (ModelComparison(1, Distance(0.001, "model.pt: w")), ResumeOutcome.WITHIN, "by up to 0.001"),
        (ModelComparison(3, others=("a.txt", "b.txt")), ResumeOutcome.DIFFERS, "in a.txt and 1 more, which could not"),
    ],
)
def test_a_different_model_is_reported_with_its_difference(
    models: ModelComparison, outcome: ResumeOutcome, words: str
) -> None:
    found = verdict(models=models, tolerance=0.01)
    assert found.outcome is outcome
    assert words in found.sentence


def test_without_a_model_the_metrics_decide() -> None:
    assert verdict(models=None).outcome is ResumeOutcome.EXACT
    off = run(losses(1, 5), losses(4, 9), metrics={"loss": 0.75})
    found = verdict(off, models=None)
    assert (found.outcome, found.sentence) == (
        ResumeOutcome.DIFFERS,
        "No model was saved; the metrics differ by up to 0.25.",
    )
    assert verdict(off, models=None, tolerance=0.25).outcome is ResumeOutcome.WITHIN
    assert 'The last "loss" is 0.5, with the interruption 0.75.' in found.evidence


def test_with_nothing_to_compare_nothing_is_claimed() -> None:
    bare = run(losses(1, 9))
    found = decide(bare, AGAIN, evidence=RESUMED, models=None, tolerance=0.0)
    assert found.outcome is ResumeOutcome.UNCLEAR
    assert verdict(evidence=ResumeEvidence(None, "Silence.")).outcome is ResumeOutcome.UNCLEAR


def test_a_job_that_was_over_first_was_not_interrupted() -> None:
    found = verdict(run(losses(1, 9), seconds=1.25))
    assert (found.outcome, found.sentence) == (
        ResumeOutcome.TOO_SHORT,
        "It ended after 1.2 s; drill a job that takes longer.",
    )


def test_a_job_that_fails_after_the_interruption_does_not_resume() -> None:
    found = verdict(run(losses(1, 5), ["boom"], status="Failed", FailureReason="AlgorithmError: no key\nmore"))
    assert found.outcome is ResumeOutcome.FAILED
    assert found.sentence == "After the interruption it is Failed: AlgorithmError: no key"


def test_a_script_that_saves_nothing_cannot_resume() -> None:
    assert verdict(run(losses(1, 5), losses(1, 9), checkpoint_files=0)).outcome is ResumeOutcome.NO_CHECKPOINT


def test_a_job_that_fails_without_an_interruption_cannot_be_judged() -> None:
    found = not_comparable(run(["boom"], status="Failed", FailureReason="AlgorithmError: no key"))
    assert found.outcome is ResumeOutcome.UNCLEAR
    assert 'is Failed, as "mnist-drill": AlgorithmError: no key' in found.sentence


def test_a_job_without_checkpoints_gets_advice() -> None:
    found = without_checkpoints("mnist")
    assert found.outcome is ResumeOutcome.NO_CONFIG
    assert "checkpoint_s3_uri" in found.sentence

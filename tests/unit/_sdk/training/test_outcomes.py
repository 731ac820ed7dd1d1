from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trainyard._sdk.training.outcomes import card_lines, card_log_lines, failure, model_uri, summary

CARD = {"Class": "user error", "Instance": "algo-1", "ExitCode": 7, "Summary": "It ended.", "Advice": ["Correct it."]}
MODEL = {"Kind": "model", "S3Uri": "s3://b/m.tar.gz", "SizeInBytes": 10}


def description(status: str = "Completed", **more: Any) -> dict[str, Any]:
    return {"TrainingJobName": "job", "TrainingJobStatus": status} | more


def details(**more: Any) -> dict[str, Any]:
    return {"Artifacts": [], "Cost": 0.0} | more


def test_a_summary_names_the_model_of_a_completed_job_and_its_cost_where_prices_are_set() -> None:
    told, found = description(TrainingTimeInSeconds=90), details(Artifacts=[MODEL], Cost=0.0029)
    with_cost = [
        'Training job "job" is Completed after 1:30 of training, which cost $0.0029.',
        "model: s3://b/m.tar.gz",
    ]
    assert summary(told, found | {"PriceIsSet": True}).splitlines() == with_cost
    assert summary(told, found, shows_price=True).splitlines() == with_cost
    assert summary(told, found).startswith('Training job "job" is Completed after 1:30 of training.\n')


def test_a_short_training_is_told_to_the_hundredth_of_a_second() -> None:
    start = datetime(2026, 7, 1, tzinfo=UTC)
    times: dict[str, Any] = {"TrainingStartTime": start, "TrainingEndTime": start + timedelta(milliseconds=140)}
    told = description(TrainingTimeInSeconds=1, **times)
    assert "after 0.14 s of training" in summary(told, details(Attempts=[{}]))
    # Of several attempts, the time between them is not training.
    assert "after 1 s of training" in summary(told, details(Attempts=[{}, {}]))


def test_a_job_that_saved_no_model_has_none_to_name() -> None:
    told = details(Artifacts=[{"Kind": "output", "S3Uri": "s3://b/o.tar.gz", "SizeInBytes": 10}])
    described = description(ModelArtifacts={"S3ModelArtifacts": "s3://b/m.tar.gz"})
    assert "model: none" in summary(described, told)
    assert "s3://" not in summary(described, told)
    assert model_uri(told) is None


def test_a_summary_of_a_failure_is_its_card() -> None:
    text = summary(description("Failed", FailureReason="AlgorithmError: …"), details(FailureCard=CARD))
    assert text.splitlines() == [
        'Training job "job" is Failed.',
        "  user error on algo-1, exit code 7",
        "  It ended.",
        "  try: Correct it.",
    ]


def test_a_failure_without_a_card_shows_its_reason() -> None:
    told = summary(description("Failed", FailureReason="CapacityError:\nnone left\x07"), details())
    assert told == 'Training job "job" is Failed.\n  CapacityError:\n  none left'


def test_an_error_has_the_reason_as_the_wire_words_it_and_what_to_try() -> None:
    text = failure(description("Failed", FailureReason="AlgorithmError: x, exit code: 7"), details(FailureCard=CARD))
    assert "  AlgorithmError: x, exit code: 7\n  user error on algo-1, exit code 7\n" in text
    assert text.endswith("try: Correct it.")


def test_a_summary_tells_what_spot_saved() -> None:
    told = description(EnableManagedSpotTraining=True, TrainingTimeInSeconds=10, BillableTimeInSeconds=3)
    assert "Spot saved 70%." in summary(told, details())


RAISED = {
    "Type": "ValueError",
    "Message": "no luck",
    "File": "/opt/ml/code/train.py",
    "Line": 7,
    "Function": "main",
    "Source": "    raise ValueError('no luck')",
}


def card(**more: Any) -> dict[str, Any]:
    return {"Class": "user error", "Instance": "algo-1", "Advice": ["Correct the program."]} | more


def test_an_exception_is_shown_with_its_location_and_source_line() -> None:
    assert card_lines(card(ExitCode=1, Exception=RAISED, Summary="ValueError: no luck (train.py, line 7)")) == [
        "user error on algo-1, exit code 1",
        "ValueError: no luck",
        "at train.py:7 in main: raise ValueError('no luck')",
        "try: Correct the program.",
    ]


def test_without_an_exception_the_summary_is_shown() -> None:
    lines = card_lines(card(Class="out of memory", Signal="SIGKILL", Summary="It used more than it has.", Advice=[]))
    assert lines == ["out of memory on algo-1, ended by SIGKILL", "It used more than it has."]


@pytest.mark.parametrize("raised", [{"Type": "KeyboardInterrupt"}, {"Type": "E", "Message": "m", "File": "a.py"}])
def test_an_exception_with_few_details_is_shown_with_what_is_known(raised: dict[str, Any]) -> None:
    lines = card_lines(card(Exception=raised))
    assert lines[0] == "user error on algo-1"
    assert lines[1].startswith(raised["Type"])
    assert lines[-1].startswith("try: ")


def test_output_of_a_job_cannot_control_a_terminal() -> None:
    told = card(Exception={"Type": "E", "Message": "\x1b]0;title\x07text"}, LastLines=["\x1b[2Jend"])
    assert card_lines(told)[1] == "E: text"
    assert card_log_lines(told) == ["end"]


def test_a_rank_is_named_before_its_instance() -> None:
    lines = card_lines(card(Rank=0, Signal="SIGKILL", Summary="It was killed.", Advice=[]))
    assert lines[0] == "user error of rank 0 on algo-1, ended by SIGKILL"

from collections.abc import Sequence

import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run, found_by, judged, losses
from trainyard.formats.tensors.contract import Mode, Step
from trainyard.foundation.errors import InvalidRequest
from trainyard.insight.rules.catalog import make_rule
from trainyard.insight.rules.contract import ComparesRuns, Finding, Severity, StepsOf

OTHER = "s3://own/jobs/first/debug-output"


def steps_of(run: Sequence[Step]) -> StepsOf:
    known = {(step.worker, step.number): step for step in run}
    return lambda worker, number: known.get((worker, number))


def compared(steps: Sequence[Step], *others: Sequence[Step], **parameters: str) -> list[Finding]:
    places = [f"{OTHER}-{number}" for number in range(len(others))]
    rule = make_rule("SimilarAcrossRuns", {"other_trials": ",".join(places), **parameters})
    assert isinstance(rule, ComparesRuns)
    rule.compare_with({place: steps_of(run) for place, run in zip(places, others, strict=True)})
    return judged(rule, steps)


def test_a_run_that_repeats_another_is_found() -> None:
    findings = compared(losses([2.3, 1.7]), losses([2.3, 1.7]))
    assert [finding.step for finding in findings] == [0, 1]
    assert findings[0].tensor == "CrossEntropyLoss_output_0"
    assert findings[0].value == pytest.approx(2.3)
    assert f"the same as in the run {OTHER}-0" in findings[0].message
    assert findings[0].severity is Severity.NOTICE


def test_a_run_that_goes_its_own_way_is_not_found() -> None:
    assert compared(losses([2.3, 1.7]), losses([2.31, 1.69])) == []


def test_a_chance_step_is_not_found_as_advised() -> None:
    ours, theirs = [2.0 - 0.1 * step for step in range(12)], [2.0 - 0.11 * step for step in range(12)]
    assert [finding.step for finding in compared(losses(ours), losses(theirs))] == [0]
    assert compared(losses(ours), losses(theirs), defaults="advised") == []
    assert compared(losses(ours), losses(ours), defaults="advised")[0].step == 9


def test_tensors_with_several_elements_are_compared_by_their_statistics() -> None:
    one, two, weight = Run(), Run(), np.arange(4.0).reshape(2, 2)
    ours = [one.step({"Net_fc.weight": weight}), one.step({"Net_fc.weight": weight + 1})]
    theirs = [two.step({"Net_fc.weight": weight}), two.step({"Net_fc.weight": weight * 2})]
    assert [finding.step for finding in compared(ours, theirs, collection_names="weights")] == [0]


def test_each_of_several_runs_is_compared() -> None:
    (finding,) = compared(losses([2.3]), losses([1.0]), losses([2.3]))
    assert f"{OTHER}-1" in finding.message


def test_steps_that_the_other_run_has_not_are_not_compared() -> None:
    assert compared(losses([2.3, 1.7]), []) == []
    assert compared(losses([2.3]), losses([2.3], mode=Mode.EVAL)) == []


def test_a_run_that_is_not_at_hand_is_an_error_that_names_it() -> None:
    with pytest.raises(InvalidRequest, match=f'the other run "{OTHER}" are not available'):
        found_by("SimilarAcrossRuns", losses([2.3]), other_trials=OTHER)
    with pytest.raises(InvalidRequest, match='needs the parameter "other_trials"'):
        make_rule("SimilarAcrossRuns", {})


# With the mean, the spread and the least of 0, 1, 2, 3, but another greatest.
LOWER = [0, 1.6 - 0.52**0.5, 1.6 + 0.52**0.5, 2.8]


@pytest.mark.parametrize(
    "other", [[0, 1, 2, 3], [0, 0, 3, 3], [-1, 2, 2, 3], [0.5, 0.5, 2, 3], [0, 1, 1, 4], [0, 1.5, 1.5, 3], LOWER]
)
def test_tensors_are_the_same_only_when_all_their_statistics_are(other: list[float]) -> None:
    ours, theirs = ([Run().step({"Net_fc.weight": np.array(values, float)})] for values in ([0, 1, 2, 3], other))
    assert bool(compared(ours, theirs, collection_names="weights")) is (other == [0, 1, 2, 3])


def test_a_difference_that_rounding_makes_is_none() -> None:
    loss = {"CrossEntropyLoss_output_0": 2.3}
    assert (
        len(compared([Run().step(loss)], [Run().step({name: value * (1 + 1e-9) for name, value in loss.items()})])) == 1
    )


def test_a_tensor_that_the_other_run_has_not_is_not_the_same() -> None:
    ours = [Run().step({"Net_a.weight": np.ones(2), "Net_b.weight": np.ones(2)})]
    theirs = [Run().step({"Net_c.weight": np.ones(2), "Net_b.weight": np.ones(2)})]
    (finding,) = compared(ours, theirs, collection_names="weights")
    assert finding.tensor == "Net_b.weight"
    assert finding.message.endswith("at this step.")

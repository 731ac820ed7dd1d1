import pytest

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.formats.tensors.contract import Mode, Step


def rounds(*importances: list[float], sort: str = "weight") -> list[Step]:
    run = Run()
    return [
        run.step(
            {f"feature_importance/{sort}/f{number}": share for number, share in enumerate(shares)}, mode=Mode.GLOBAL
        )
        for shares in importances
    ]


def test_three_features_that_decide_almost_alone_are_found() -> None:
    (finding,) = found_by("FeatureImportanceOverweight", rounds([0.2] * 5, [0.1, 0.05, 0.5, 0.3, 0.05]))
    assert (finding.step, finding.tensor, finding.threshold) == (1, "feature_importance/weight/f2", 0.8)
    assert finding.value == pytest.approx(0.9)
    assert "The features f2, f3, f0 have 90% of all importance" in finding.message


def test_importances_that_are_spread_are_not_found() -> None:
    assert found_by("FeatureImportanceOverweight", rounds([0.2] * 5, [0.4, 0.2, 0.2, 0.2])) == []


def test_the_first_rounds_are_not_found_as_advised() -> None:
    early, later = [0.9, 0.05, 0.05], [0.2] * 5
    assert found_by("FeatureImportanceOverweight", rounds(*[early] * 19, later), defaults="advised") == []
    assert found_by("FeatureImportanceOverweight", rounds(*[early] * 20), defaults="advised")[0].step == 19


def test_other_sorts_of_importance_are_not_looked_at_unless_asked() -> None:
    steps = rounds([1.0], sort="total_gain")
    assert found_by("FeatureImportanceOverweight", steps) == []
    assert len(found_by("FeatureImportanceOverweight", steps, tensor_regex="feature_importance/total_gain")) == 1

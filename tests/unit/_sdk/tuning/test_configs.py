from typing import Any

import pytest

from trainyard._sdk.tuning.configs import (
    HyperbandStrategyConfig,
    StrategyConfig,
    TuningJobCompletionCriteriaConfig,
    WarmStartConfig,
    WarmStartTypes,
)
from trainyard.foundation.errors import InvalidRequest


@pytest.mark.parametrize(
    ("kind", "parents", "words"),
    [("IdenticalDataAndAlgorithm", {"a"}, "warm_start_type is"), (WarmStartTypes.TRANSFER_LEARNING, set(), "is empty")],
)
def test_a_warm_start_needs_a_type_and_parents(kind: Any, parents: set[str], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        WarmStartConfig(kind, parents)


def test_configurations_come_back_from_what_they_ask() -> None:
    criteria = TuningJobCompletionCriteriaConfig(5, False, 0.5).to_input_req()
    assert TuningJobCompletionCriteriaConfig.from_job_desc(criteria).to_input_req() == criteria
    strategy = StrategyConfig(HyperbandStrategyConfig(9, 1)).to_input_req()
    assert StrategyConfig.from_job_desc(strategy).to_input_req() == strategy
    warm = WarmStartConfig(WarmStartTypes.TRANSFER_LEARNING, {"a"}).to_input_req()
    found = WarmStartConfig.from_job_desc(warm)
    assert found is not None
    assert found.to_input_req() == warm
    assert WarmStartConfig.from_job_desc(None) is None

import numpy as np

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.formats.tensors.contract import Mode, Step


def rounds(*largest: int) -> list[Step]:
    run = Run()
    return [run.step({"trees/Node": np.arange(node + 1)}, mode=Mode.GLOBAL) for node in largest]


def test_a_tree_that_is_too_deep_is_found() -> None:
    (finding,) = found_by("TreeDepth", rounds(14, 30, 31))
    assert (finding.tensor, finding.step, finding.value, finding.threshold) == ("trees/Node", 2, 5.0, 4.0)
    assert list(finding.evidence[0].values) == [3.0, 4.0, 5.0]


def test_a_full_tree_of_the_depth_that_is_allowed_is_not_found() -> None:
    assert found_by("TreeDepth", rounds(126), depth="6") == []
    assert len(found_by("TreeDepth", rounds(127), depth="6")) == 1


def test_a_tree_that_is_one_leaf_has_no_depth() -> None:
    assert found_by("TreeDepth", rounds(0), depth="0") == []

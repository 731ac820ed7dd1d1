"""Every pruner gives a deterministic verdict on any curves."""

import pytest

from trainyard.foundation.jobs.tuning import HyperbandResources, Objective
from trainyard.insight.tuning.curves import CurveRule
from trainyard.insight.tuning.hyperband import Hyperband
from trainyard.insight.tuning.median import MedianRule
from trainyard.testing.tuning import REPORTS, MakePruner, PrunerContract


class TestMedianRule(PrunerContract):
    @pytest.fixture
    def make_pruner(self) -> MakePruner:
        return lambda direction: MedianRule(Objective("objective", direction))


class TestCurveRule(PrunerContract):
    @pytest.fixture
    def make_pruner(self) -> MakePruner:
        return lambda direction: CurveRule(Objective("objective", direction))


class TestHyperband(PrunerContract):
    @pytest.fixture
    def make_pruner(self) -> MakePruner:
        return lambda direction: Hyperband(Objective("objective", direction), HyperbandResources(1, REPORTS))

"""Jobs that start beside the reservation of one that does not fit."""

from tests.unit.server.control.scheduling.samples import GIB, asking, nodes
from trainyard.engines.placement import Demand, FreeResources
from trainyard.foundation.jobs.attempts import Share
from trainyard.server.control.scheduling.backfill import find_backfill

LEFT = FreeResources(nodes("a"), [Share(12.0, GIB, node="a")])


def test_the_first_job_that_fits_is_found_and_those_before_it_are_refused() -> None:
    refused = set[Demand]()
    large, small, other = asking("large", instance_type="ml.m5.4xlarge"), asking("small"), asking("other")
    found = find_backfill([large, small, other], LEFT, refused=refused)
    assert found is not None
    assert (found[0], [share.node for share in found[1]]) == (small, ["a"])
    assert refused == {large.demand}


def test_a_demand_that_was_refused_is_not_tried_again() -> None:
    small = asking("small")
    assert find_backfill([small], LEFT, refused={small.demand}) is None

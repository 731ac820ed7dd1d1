"""Which instances share a machine."""

from dataclasses import replace
from pathlib import Path

from trainyard.link.neighbours import elsewhere, is_first_here, is_spread
from trainyard.testing.engines.samples import Surroundings, attempt_specs

SPECS = attempt_specs(Surroundings(Path("/nowhere")), count=4)
SPREAD = [replace(spec, addresses=("10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.2")) for spec in SPECS]


def test_without_addresses_all_lie_on_one_machine() -> None:
    assert not any(map(is_spread, SPECS))
    assert [elsewhere(spec) for spec in SPECS] == [()] * 4
    assert [is_first_here(spec) for spec in SPECS] == [True, False, False, False]


def test_instances_with_one_address_lie_on_one_machine() -> None:
    assert all(map(is_spread, SPREAD))
    assert [elsewhere(spec) for spec in SPREAD] == [["algo-2", "algo-4"], ["algo-1", "algo-3"]] * 2
    assert [is_first_here(spec) for spec in SPREAD] == [True, True, False, False]

"""What steps and samples cost."""

from dataclasses import replace

import pytest

from tests.faulty_profiles import cpu_job, gpu_job, ranks_job, with_facts
from tests.profiles import COMPUTING
from trainyard.insight.profiling.contract import InstanceFacts, JobProfile
from trainyard.insight.profiling.verdict.contract import ProfileCosts
from trainyard.insight.profiling.verdict.costs import compute_costs
from trainyard.insight.profiling.verdict.steady_state import find_steady_state


def costs(profile: JobProfile) -> ProfileCosts:
    state = find_steady_state(profile)
    assert state is not None
    return compute_costs(state)


def test_a_step_costs_its_time_at_the_price_of_the_instance() -> None:
    found = costs(cpu_job(step_s=0.36))
    assert found.step_s == pytest.approx(0.36, rel=0.02)
    assert found.currency == "USD"
    assert found.money_per_step == pytest.approx(0.096 / 3600 * 0.36, rel=0.02)
    assert found.samples_per_s == pytest.approx(64 / 0.36, rel=0.02)
    assert found.money_per_million_samples == pytest.approx(0.096 / 3600 * 0.36 / 64 * 1e6, rel=0.02)


def test_energy_is_that_of_the_gpus() -> None:
    found = costs(gpu_job(step_s=0.2, gpu_busy=90.0, gpus=2))
    assert found.joules_per_step == pytest.approx(2 * (60 + 2.2 * 90) * 0.2, rel=0.03)
    assert found.joules_per_sample == pytest.approx(2 * (60 + 2.2 * 90) * 0.2 / 64, rel=0.03)
    assert costs(cpu_job()).joules_per_step is None


def test_samples_of_all_ranks_count() -> None:
    found = costs(ranks_job(COMPUTING, COMPUTING, step_s=0.2))
    assert found.samples_per_s == pytest.approx(2 * 64 / 0.2, rel=0.02)


def test_unknown_prices_and_samples_give_no_figures() -> None:
    found = costs(with_facts(replace(cpu_job(), instances={"algo-1": InstanceFacts()}), samples_per_step=None))
    assert found.step_s is not None
    assert (found.money_per_step, found.samples_per_s, found.money_per_million_samples) == (None, None, None)


def test_prices_in_several_currencies_do_not_add_up() -> None:
    profile = cpu_job()
    facts = {"algo-1": InstanceFacts(price_per_hour=1, currency="USD"), "algo-2": InstanceFacts(price_per_hour=1)}
    found = costs(replace(profile, instances=facts))
    assert (found.money_per_step, found.currency) == (None, "")

"""What holds for every profiler rule: it finds no fault with a healthy job at any time, and never fails."""

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.profiles import HEALTHY, START_US, until
from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries, StepPhase
from trainyard.formats.tensors.contract import Mode
from trainyard.insight.profiling.contract import (
    HardwareSamples,
    InstanceFacts,
    JobProfile,
    LoaderFacts,
    ProgramFacts,
    RankProfile,
    StepTimes,
)
from trainyard.insight.rules.parameters import Defaults
from trainyard.insight.rules.profiler.catalog import PROFILER_RULES, make_profiler_rule, report_rules
from trainyard.insight.rules.profiler.contract import ProfilerCheck

MOMENTS_S = (3, 65, 130, 500, 900)
DEVICES = ("", "total", "core0", "core1", "gpu0", "gpu1", "cpu", "io")


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_job_raises_no_alarm(name: str) -> None:
    profile = HEALTHY[name]()
    for rule, made in report_rules({}):
        check = made.check(profile)
        assert [f"{rule}: {finding.message}" for finding in check.findings] == []
        assert_sound(check)


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_job_raises_no_alarm_while_it_runs_or_when_it_is_killed(name: str) -> None:
    profile = HEALTHY[name]()
    rules = report_rules({})
    found = [
        f"{rule} after {moment} s: {finding.message}"
        for moment in MOMENTS_S
        for is_running in (True, False)
        for rule, made in rules
        for finding in made.check(until(profile, moment, is_running=is_running)).findings
    ]
    assert found == []


numbers = st.floats(0, 100) | st.floats(-1e12, 1e12) | st.sampled_from([0.0, 100.0, math.nan, math.inf])


@st.composite
def hardware_samples(draw: st.DrawFn) -> HardwareSamples:
    count = draw(st.integers(0, 30))
    gaps = draw(st.lists(st.integers(0, 5_000_000), min_size=count, max_size=count))
    times = START_US + np.cumsum(np.array(gaps, dtype=np.int64))
    keys = st.builds(HardwareSeries, st.sampled_from(HardwareMetric), st.sampled_from(DEVICES))
    series = draw(st.dictionaries(keys, arrays.arrays(np.float64, count, elements=numbers), max_size=8))
    return HardwareSamples(times, series)


@st.composite
def steps(draw: st.DrawFn) -> StepTimes:
    # Each drawn row may stand for many alike, since most rules want a hundred.
    count = draw(st.integers(0, 8))
    repeats = draw(st.integers(1, 40))
    times = START_US + draw(arrays.arrays(np.int64, count * repeats, elements=st.integers(-10_000_000, 10_000_000_000)))
    phases = draw(arrays.arrays(np.float64, (count, len(StepPhase)), elements=numbers))
    modes = draw(st.lists(st.sampled_from([Mode.TRAIN, Mode.EVAL, Mode.PREDICT]), min_size=count, max_size=count))
    return StepTimes(
        np.arange(count * repeats, dtype=np.int64),
        np.resize(draw(arrays.arrays(np.int64, count, elements=st.integers(0, 1000))), count * repeats),
        [mode for mode in modes for _ in range(repeats)],
        times,
        times + draw(st.integers(0, 10_000_000)),
        np.repeat(phases, repeats, axis=0),
    )


loaders = st.builds(
    LoaderFacts,
    st.just("Images"),
    st.integers(-1, 1000),
    st.booleans(),
    st.none() | st.integers(0, 4),
    st.none() | st.integers(0, 64),
    st.lists(numbers, max_size=4),
    st.lists(numbers, max_size=4),
)
programs = st.builds(
    ProgramFacts,
    device=st.sampled_from(["", "cpu", "cuda"]),
    threads=st.none() | st.integers(-1, 64),
    loaders=st.lists(loaders, max_size=2),
)
hosts = st.sampled_from(["algo-1", "algo-2"])
ranks = st.builds(RankProfile, st.sampled_from(["worker_0", "worker_1"]), hosts, st.integers(0, 3), steps(), programs)
instances = st.builds(
    InstanceFacts,
    cores=st.none() | st.floats(0.1, 1e4),
    memory_bytes=st.none() | st.integers(0, 2**40),
    price_per_hour=st.none() | st.floats(0, 1e4),
)
profiles = st.builds(
    JobProfile,
    st.just("a-job"),
    st.just(START_US),
    st.none() | st.integers(START_US, START_US + 10_000_000_000),
    st.dictionaries(hosts, hardware_samples(), max_size=2),
    st.dictionaries(hosts, instances, max_size=2),
    st.lists(ranks, max_size=3),
)


@given(profile=profiles, defaults=st.sampled_from(Defaults), patience=st.sampled_from(["0", "1", "7"]))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_no_profile_makes_a_rule_fail(profile: JobProfile, defaults: Defaults, patience: str) -> None:
    for rule in PROFILER_RULES:
        given = {"defaults": str(defaults)}
        if any(each.name == "patience" for each in PROFILER_RULES[rule].parameters):
            given["patience"] = patience
        assert_sound(make_profiler_rule(rule, given).check(profile))


def assert_sound(check: ProfilerCheck) -> None:
    """Assert what the report and the API rely on."""
    json.dumps(check.details, allow_nan=False)
    assert check.datapoints >= 0
    assert check.violations >= 0
    assert not (check.findings and check.undecided)
    for sentence in [*(finding.message for finding in check.findings), check.undecided]:
        assert not sentence or sentence.endswith(".")
        assert "nan" not in sentence.split()
    assert_finite([value for finding in check.findings for value in (finding.value, finding.threshold)])


def assert_finite(values: Sequence[float | None]) -> None:
    assert all(value is not None and math.isfinite(value) for value in values)

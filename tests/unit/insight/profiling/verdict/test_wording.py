import pytest

from trainyard.insight.profiling.verdict.wording import (
    count,
    describe_cores,
    duration,
    is_library_call,
    percent,
    size,
    times,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0000015, "1.5 µs"),
        (0.0123, "12.3 ms"),
        (0.99996, "1 s"),
        (0.00099996, "1 ms"),
        (1.5, "1.5 s"),
        (119, "119 s"),
        (1200, "20 minutes"),
        (9000, "2.5 hours"),
        (4.32e6, "1,200 hours"),
    ],
)
def test_durations_have_the_unit_that_fits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_figures_are_short() -> None:
    assert [percent(each) for each in (0, 0.004, 0.123, 1)] == ["0 %", "0.4 %", "12 %", "100 %"]
    assert percent(0.0001) == "less than 0.1 %"
    assert [count(each, "core") for each in (1, 2, 0.5)] == ["1 core", "2 cores", "0.5 cores"]
    assert [count(each, "batch", "batches") for each in (1, 12345)] == ["1 batch", "12,345 batches"]
    assert count(124_439_808, "parameter") == "124 million parameters"
    assert [size(each) for each in (10, 999.7, 1234, 5.6e9)] == ["10 bytes", "1 kB", "1.23 kB", "5.6 GB"]
    assert [times(each) for each in (1.04, 1.53, 12.4)] == ["1.04 times", "1.5 times", "12 times"]


def test_the_use_of_cores_reads_well_for_any_number_of_them() -> None:
    assert describe_cores(None, 2) == describe_cores(1.0, None) == []
    assert describe_cores(0.3, 2) == ["The job uses 30 % of one core, and has 2."]
    assert describe_cores(0.3, 1) == ["The job uses 30 % of its core."]
    assert describe_cores(1.94, 2) == ["The job keeps 1.9 of its 2 cores busy."]


def test_calls_of_libraries_are_told_from_own_lines() -> None:
    assert is_library_call("step (torch/optim/sgd.py:70)")
    assert not is_library_call("loss.item()")
    assert not is_library_call("entropy(rows[1:3])")

from dataclasses import replace

import numpy as np
import pytest

from tests.profiles import at_us, cpu_hardware, gpu_hardware, job, rank, step_times, with_evaluations
from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries, StepPhase
from trainyard.formats.tensors.contract import Mode
from trainyard.insight.profiling.report.figures import (
    list_slow_steps,
    list_step_usage,
    list_usage,
    measure_times,
    series_order,
)


def test_the_time_of_a_job_divides_into_what_is_before_in_and_after_its_steps() -> None:
    steps = step_times(80, begin_s=20, step_s=np.full(120, 0.5), noise=0)
    times = measure_times(job(100, None, rank(steps)), at_us(500))
    assert times.duration_s == pytest.approx(100)
    assert [times.initialization_s, times.loop_s, times.finalization_s] == pytest.approx([20, 60, 20])
    assert times.share_of(times.loop_s) == pytest.approx(0.6)


def test_a_running_job_lasts_until_the_report_and_has_no_end_of_its_loop_yet() -> None:
    times = measure_times(job(100, None, rank(step_times(80)), is_running=True), at_us(90))
    assert times.duration_s == pytest.approx(90)
    assert times.finalization_s is None


def test_without_steps_the_time_does_not_divide() -> None:
    times = measure_times(job(100, cpu_hardware(100)), at_us(100))
    assert [times.initialization_s, times.loop_s, times.finalization_s] == [None, None, None]


def test_steps_of_a_wrong_clock_do_not_stretch_the_job() -> None:
    times = measure_times(job(100, None, rank(step_times(900, begin_s=-50))), at_us(100))
    assert times.duration_s == pytest.approx(100)
    assert times.initialization_s == 0
    assert times.finalization_s == 0


def test_the_use_of_a_series_has_its_quantiles() -> None:
    hardware = cpu_hardware(100)
    values = np.arange(100.0)
    values[50] = np.nan
    hardware = replace(hardware, series={HardwareSeries(HardwareMetric.CPU_PERCENT, "total"): values})
    (usage,) = list_usage(job(100, hardware))
    known = values[np.isfinite(values)]
    assert (usage.host, usage.device, usage.unit, usage.samples) == ("algo-1", "total", "%", 99)
    assert [usage.maximum, usage.minimum, usage.mean] == pytest.approx([99, 0, known.mean()])
    assert [usage.p50, usage.p95, usage.p99] == pytest.approx(np.percentile(known, [50, 95, 99]).tolist())


def test_series_without_values_counters_and_bits_have_no_distribution() -> None:
    hardware = gpu_hardware(10)
    empty = HardwareSeries(HardwareMetric.CPU_PERCENT, "total")
    hardware = replace(hardware, series={**hardware.series, empty: np.full(len(hardware), np.nan)})
    metrics = {(usage.metric, usage.device) for usage in list_usage(job(10, hardware))}
    assert (HardwareMetric.CPU_PERCENT, "total") not in metrics
    assert (HardwareMetric.GPU_ENERGY_JOULES, "gpu0") not in metrics
    assert (HardwareMetric.GPU_PERCENT, "gpu0") in metrics


def test_single_cores_are_listed_apart() -> None:
    profile = job(10, gpu_hardware(10, cores=3))
    assert not [usage for usage in list_usage(profile) if usage.device.startswith("core")]
    cores = list_usage(profile, of_cores=True)
    assert [usage.device for usage in cores if usage.metric is HardwareMetric.CPU_PERCENT] == [
        "core0",
        "core1",
        "core2",
    ]


def test_cores_are_in_the_order_of_their_numbers() -> None:
    series = [HardwareSeries(HardwareMetric.CPU_PERCENT, name) for name in ("core10", "total", "core9", "core1")]
    assert [each.device for each in sorted(series, key=series_order)] == ["core1", "core9", "core10", "total"]


def test_steps_are_summed_up_by_rank_and_mode() -> None:
    steps = with_evaluations(step_times(200, step_s=np.full(400, 0.25), noise=0), every=100, seconds=0.5)
    training, evaluating = list_step_usage([rank(steps)])
    assert (training.mode, training.steps, evaluating.mode, evaluating.steps) == (Mode.TRAIN, 400, Mode.EVAL, 60)
    assert [training.mean_s, training.p50_s, training.maximum_s] == pytest.approx([0.25] * 3, rel=1e-4)
    assert float(training.phases_s.sum()) == pytest.approx(0.25, rel=1e-4)
    assert evaluating.mean_s == pytest.approx(0.025)


def test_rows_that_stand_for_many_steps_count_as_many() -> None:
    (usage,) = list_step_usage([rank(step_times(100, step_s=0.002, counts=50, noise=0))])
    assert usage.steps % 50 == 0
    assert usage.mean_s == pytest.approx(0.002, rel=1e-3)
    assert float(usage.phases_s.sum()) == pytest.approx(0.002, rel=1e-3)


def test_slow_steps_name_the_phase_that_took_longer() -> None:
    added = np.zeros(400)
    added[123] = 3.0
    steps = step_times(200, step_s=np.full(400, 0.25), added_s={StepPhase.CHECKPOINT: added})
    (slow,) = list_slow_steps([rank(steps)])
    assert (slow.worker, slow.number, slow.phase) == ("worker_0", 123, StepPhase.CHECKPOINT)
    assert slow.duration_s == pytest.approx(3.25, rel=0.05)
    assert slow.median_s == pytest.approx(0.25, rel=0.02)


def test_there_are_no_figures_of_nothing() -> None:
    empty = job(0)
    assert (list_usage(empty), list_step_usage(()), list_slow_steps(())) == ([], [], [])

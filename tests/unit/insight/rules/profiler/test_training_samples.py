import math
from dataclasses import replace

import numpy as np
import pytest

from tests.profiles import HEALTHY, at_us, cpu_hardware, gpu_hardware, job, rank, step_times
from trainyard.formats.profiles.contract import HardwareMetric
from trainyard.insight.rules.profiler.training_samples import instance_cores, latest_us, training_samples


def test_samples_count_from_the_second_step_to_the_last() -> None:
    profile = job(100, cpu_hardware(100), rank(step_times(80, begin_s=30, step_s=1.0, noise=0.0)))
    (samples,) = training_samples(profile)
    assert samples.times_us.min() >= at_us(31)
    assert samples.times_us.max() <= at_us(80)
    assert samples.seconds == pytest.approx(49)


def test_a_host_without_steps_trained_when_the_others_did() -> None:
    hosts = {"algo-1": cpu_hardware(100), "algo-2": cpu_hardware(100)}
    _, second = training_samples(job(100, hosts, rank(step_times(100, begin_s=50))))
    assert second.host == "algo-2"
    assert second.times_us.min() >= at_us(50)


def test_without_steps_training_begins_with_the_first_use_of_a_gpu() -> None:
    (samples,) = training_samples(job(100, gpu_hardware(100, starting_s=40), gpus=1))
    assert samples.times_us.min() == pytest.approx(at_us(40), abs=1e6)
    assert list(samples.used_gpus) == ["gpu0"]


def test_series_without_values_are_left_out_and_devices_are_in_the_order_of_their_numbers() -> None:
    (samples,) = training_samples(HEALTHY["ragged"]())
    assert list(samples.of(HardwareMetric.GPU_PERCENT)) == ["gpu0"]
    (many,) = training_samples(job(50, cpu_hardware(50, cores=12)))
    assert list(many.of(HardwareMetric.CPU_PERCENT))[:3] == ["core0", "core1", "core2"]
    assert list(many.of(HardwareMetric.CPU_PERCENT))[-2:] == ["core10", "core11"]


def test_a_window_has_the_latest_samples() -> None:
    (samples,) = training_samples(job(100, cpu_hardware(100)), window=10)
    assert len(samples) == 10
    assert samples.times_us.min() >= at_us(90)


def test_the_time_of_a_suspended_machine_does_not_count() -> None:
    (samples,) = training_samples(HEALTHY["suspended"]())
    assert samples.seconds == pytest.approx(1180, abs=15)


def test_cores_are_those_of_the_instance_else_those_that_were_sampled() -> None:
    profile = job(10, cpu_hardware(10, cores=6), cores=1.5)
    assert instance_cores(profile, "algo-1") == 1.5
    assert instance_cores(replace(profile, instances={}), "algo-1") == 6
    assert math.isnan(instance_cores(profile, "algo-9"))


def test_the_cores_that_a_job_uses_are_its_own_not_those_of_the_machine() -> None:
    (samples,) = training_samples(job(50, cpu_hardware(50, cores=4, busy=90.0, job=25.0), cores=4))
    assert samples.job_cores is not None
    assert float(np.mean(samples.job_cores)) == pytest.approx(1.0, abs=0.05)


def test_the_latest_time_is_of_samples_steps_or_the_end() -> None:
    assert latest_us(job(10, is_running=True)) == at_us(0)
    assert latest_us(job(10)) == at_us(10)
    assert latest_us(job(0, None, rank(step_times(30, noise=0.0)), is_running=True)) == at_us(30)

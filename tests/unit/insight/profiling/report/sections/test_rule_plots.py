from collections.abc import Mapping

import numpy as np
import pytest

from tests.profiles import at_us, cpu_hardware, gpu_hardware, job, loader, rank, step_times
from tests.report_pages import read_page
from trainyard.foundation.jobs.status import RuleStatus
from trainyard.insight.profiling.contract import JobProfile
from trainyard.insight.profiling.report.contract import ReportedRule, ReportSource
from trainyard.insight.profiling.report.sections.rule_plots import draw_rule
from trainyard.insight.profiling.verdict.contract import ProfileVerdict
from trainyard.insight.rules.profiler.catalog import PROFILER_RULES
from trainyard.insight.rules.profiler.contract import ProfilerCheck, ProfilerFinding

SILENT = {"OverallSystemUsage", "OverallFrameworkMetrics", "ProfilerReport"}


def source_of(profile: JobProfile) -> ReportSource:
    return ReportSource(profile, ProfileVerdict(""), at_us(600))


def rule_of(name: str, parameters: Mapping[str, object] | None = None) -> ReportedRule:
    check = ProfilerCheck((ProfilerFinding("It happened."),), 1, 1)
    return ReportedRule(name, name, "", "", parameters or {}, RuleStatus.ISSUES_FOUND, check)


def idle_gpus() -> ReportSource:
    """Half of the time, the first core is busy and waits for the disk, and no GPU works."""
    is_idle = np.arange(600) < 300
    hardware = gpu_hardware(
        600,
        gpus=2,
        starting_s=0,
        gpu_busy=np.where(is_idle, 1.0, 95.0),
        busy=np.where(is_idle, 97.0, 20.0),
        io_wait=np.where(is_idle, 80.0, 1.0),
    )
    ranks = [rank(step_times(600, begin_s=10), loaders=[loader(2)], device="cuda")]
    return source_of(job(600, hardware, *ranks, cores=4, gpus=2))


@pytest.mark.parametrize("name", sorted(set(PROFILER_RULES) - SILENT))
def test_every_rule_that_can_trigger_has_a_plot(name: str) -> None:
    plots = read_page(draw_rule(rule_of(name), idle_gpus()))
    assert plots.find_all("figure") or plots.find_all("table") or plots.find_all(of_class="parts")


@pytest.mark.parametrize("name", sorted(PROFILER_RULES))
def test_a_rule_has_no_plot_of_what_was_not_recorded(name: str) -> None:
    read_page(draw_rule(rule_of(name), source_of(job(0))))


def test_each_gpu_has_its_box_and_the_threshold_of_the_rule() -> None:
    plots = read_page(draw_rule(rule_of("LowGPUUtilization", {"threshold_p95": 70.0}), idle_gpus()))
    first, second = plots.table("Utilization of each GPU; the line is the rule's threshold of p95")
    assert (first["Device"], second["Device"]) == ("algo-1 GPU 0", "algo-1 GPU 1")
    assert float(first["p95"].removesuffix(" %")) > 90
    assert plots.find(of_class="threshold").attributes["style"] == "left:70.0%"


@pytest.mark.parametrize(
    ("name", "label"), [("CPUBottleneck", "CPU busy, GPU idle"), ("IOBottleneck", "I/O wait, GPU idle")]
)
def test_a_bottleneck_is_the_share_of_samples_at_which_something_else_was_busy(name: str, label: str) -> None:
    parameters = {"gpu_threshold": 10, "cpu_threshold": 90, "io_threshold": 50}
    plots = read_page(draw_rule(rule_of(name, parameters), idle_gpus()))
    samples, phases = (each.attributes["aria-label"] for each in plots.find_all(of_class="parts"))
    assert samples.startswith(f"{label} 50.0 %")
    assert samples.endswith("GPU busy 50.0 %")
    assert "backward 5" in phases


def test_without_gpus_a_bottleneck_shows_how_busy_the_cpu_was() -> None:
    source = source_of(job(60, cpu_hardware(60)))
    assert "CPU" in read_page(draw_rule(rule_of("CPUBottleneck"), source)).find("figcaption").text


def test_gpus_are_compared_by_how_often_they_were_how_busy() -> None:
    plots = read_page(draw_rule(rule_of("LoadBalancing"), idle_gpus()))
    assert [each.attributes["data-label"] for each in plots.find_all("path", of_class="line")] == [
        "algo-1 GPU 0",
        "algo-1 GPU 1",
    ]


def test_data_workers_stand_beside_cores() -> None:
    (row,) = read_page(draw_rule(rule_of("Dataloader"), idle_gpus())).table("Data workers beside cores")
    assert (row["Loader's processes"], row["Cores"]) == ("2", "4")


def test_a_rule_that_the_report_does_not_know_has_no_plot() -> None:
    assert draw_rule(rule_of("MyOwnRule"), idle_gpus()) == ""

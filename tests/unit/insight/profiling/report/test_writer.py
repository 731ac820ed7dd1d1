from dataclasses import replace

import pytest

from tests.profiles import HEALTHY, at_us, cpu_hardware, job, rank, step_times
from tests.report_pages import Node, read_page
from tests.reported_jobs import checked_rules, gpu_trace, slow_loading_source
from trainyard.foundation.jobs.status import RuleStatus
from trainyard.insight.profiling.report.contract import NOTEBOOK, PAGE, ReportSource
from trainyard.insight.profiling.report.writer import write_report
from trainyard.insight.profiling.verdict.contract import ProfileCosts, ProfileVerdict
from trainyard.insight.rules.profiler.contract import ProfilerCheck

NOTHING = ProfileVerdict("There is nothing to judge yet.")


def page_of(source: ReportSource) -> Node:
    return read_page(write_report(source)[PAGE].decode())


@pytest.fixture(scope="module")
def page() -> Node:
    return page_of(slow_loading_source())


def section(page: Node, anchor: str) -> Node:
    return page.find("section", identifier=anchor)


def test_a_report_is_a_page_a_notebook_and_a_file_for_each_rule() -> None:
    source = slow_loading_source()
    assert set(write_report(source)) == {
        PAGE,
        NOTEBOOK,
        *(f"profiler-reports/{rule.rule}.json" for rule in source.rules),
    }


def test_the_page_leads_with_the_verdict(page: Node) -> None:
    verdict = page.find_all("section")[0]
    assert verdict.attributes["id"] == "verdict"
    text = verdict.text
    assert "The GPUs wait for data in 44 % of each step" in text
    assert "Data loading" in text
    assert "at most 1.79\N{MULTIPLICATION SIGN} as fast without it" in text
    assert "44.0 % of each step" in text
    assert "In a step of 291 ms, the program waits 128 ms (44 %) for its data." in text
    assert "A step takes 18 % longer than in resnet50-flowers-2026-11-11" in text
    assert [each.find("strong").text for each in verdict.find("ol").find_all("li")] == [
        "Use 6 data workers instead of 2",
        "Train in bfloat16",
        "Pin the memory of batches",
    ]
    assert "loader_workers=6" in text.replace("\u200b", "")


def test_costs_are_shown_as_far_as_they_are_known(page: Node) -> None:
    tiles = {
        each.find("dt").text: each.find("dd").text
        for each in section(page, "verdict").find(of_class="tiles").find_all("div")
    }
    assert tiles == {
        "Mean step": "291 ms",
        "Samples per second": "439",
        "Cost of 1,000 steps": "0.0981 USD",
        "Cost of a million samples": "0.766 USD",
        "Energy per step": "63.9 J",
        "Energy per sample": "0.499 J",
    }
    assert not page_of(ReportSource(job(0), NOTHING, at_us(0))).find_all(of_class="tiles")


def test_the_summary_divides_the_time_of_the_job(page: Node) -> None:
    rows = section(page, "job").table("Parts of the job's time")
    assert [row["Part"] for row in rows] == ["Initialization", "Training loop", "Finalization"]
    assert rows[0] == {"Part": "Initialization", "Time": "1 min 35 s", "Share": "4.0 %"}
    assert "arn:aws:sagemaker:eu-west-1:111122223333" in section(page, "job").text


def test_phases_and_durations_have_the_figures_of_each_rank(page: Node) -> None:
    steps = section(page, "steps")
    metrics = steps.table("Mean time of each phase, and its share")
    assert [(row["Worker"], row["Mode"], row["Steps"]) for row in metrics] == [
        ("worker_0", "TRAIN", "7,450"),
        ("worker_0", "EVAL", "60"),
        ("worker_1", "TRAIN", "7,450"),
        ("worker_1", "EVAL", "60"),
    ]
    assert metrics[0]["data wait"].startswith("128 ms")
    assert metrics[0]["checkpoint"] != "\N{EN DASH}"
    assert metrics[2]["checkpoint"] == "\N{EN DASH}"
    durations = steps.table("Durations of steps; an outlier takes more than 2 times the median")
    assert (durations[0]["p50"], durations[0]["Outliers"]) == ("290 ms", "3")
    modes = next(
        each.attributes["aria-label"]
        for each in steps.find_all(of_class="parts")
        if "TRAIN" in each.attributes["aria-label"]
    )
    assert modes.startswith("TRAIN 95.")
    slow = steps.table("Outliers")
    assert {row["What took longer"] for row in slow} == {"checkpoint", "communication"}


def test_charts_say_in_words_what_they_show(page: Node) -> None:
    labels = [each.attributes["aria-label"] for each in page.find_all("svg")]
    assert all(each.attributes["role"] == "img" for each in page.find_all("svg"))
    assert any(label.startswith("GPU. GPU 0: 0 % to 98.9 %") for label in labels)
    assert any("data wait: 43" in label for label in labels)


def test_system_usage_has_a_row_for_each_series(page: Node) -> None:
    rows = section(page, "system").table("System usage statistics")
    gpu = next(row for row in rows if row["Metric"] == "GPU 0")
    assert list(gpu) == ["Instance", "Metric", "Mean", "Max", "p99", "p95", "p90", "p50", "Min"]
    assert (gpu["Instance"], gpu["Min"]) == ("algo-1", "0 %")
    parts = section(page, "system").table("Mean use in each part of the job")
    assert next(row for row in parts if row["Metric"] == "GPU 0")["Initialization"] == "0 %"
    assert page.find("image").attributes["data-labels"].splitlines()[-2:] == ["GPU 0", "GPU 1"]


def test_rules_with_most_findings_are_first_and_only_they_have_plots(page: Node) -> None:
    rules = section(page, "rules")
    rows = rules.table("Rules summary")
    triggered = [int(row["Times triggered"]) for row in rows]
    assert triggered == sorted(triggered, reverse=True)
    assert triggered[0] > 0
    for rule in rules.find_all("details", of_class="rule"):
        is_open = "open" in rule.attributes
        has_plot = bool(rule.find_all("figure") + rule.find_all(of_class="parts") + rule.find_all(of_class="boxplot"))
        has_findings = bool(rule.find_all(of_class="findings"))
        assert is_open == has_findings
        assert has_findings or not has_plot
    assert "worker_1 on algo-1 waits for data" in rules.text
    assert "cpu_threshold=90" in rules.text


def test_a_rule_that_cannot_judge_says_why() -> None:
    (rule, *_) = slow_loading_source().rules
    check = ProfilerCheck(undecided="There are too few samples.")
    waiting = replace(rule, check=check, status=RuleStatus.IN_PROGRESS)
    page = page_of(ReportSource(job(0), NOTHING, at_us(0), rules=[waiting]))
    assert "There are too few samples." in section(page, "rules").text
    assert "There are too few samples." in section(page, "notes").text
    assert "No rule found anything." in section(page, "rules").text
    ended = page_of(
        ReportSource(job(0), NOTHING, at_us(0), rules=[replace(waiting, status=RuleStatus.NO_ISSUES_FOUND)])
    )
    assert section(ended, "rules").table("Rules summary")[0]["Status"] == "not judged"


def test_a_short_training_in_a_long_job_is_drawn_on_an_axis_of_its_own() -> None:
    profile = job(600, cpu_hardware(600), rank(step_times(330, begin_s=300)))
    page = page_of(ReportSource(profile, NOTHING, at_us(600)))
    chart = section(page, "steps").find(of_class="plot").attributes
    assert (float(chart["data-x0"]), float(chart["data-x1"])) == pytest.approx((300, 330), abs=1)
    assert "data-group" not in chart
    assert section(page, "system").find(of_class="plot").attributes["data-group"] == "time"


@pytest.mark.parametrize(
    ("per_step", "tile"),
    [
        (0.5, ("Cost of a step", "0.500 USD")),
        (2e-5, ("Cost of 1,000 steps", "0.0200 USD")),
        (7.66e-9, ("Cost of a million steps", "0.00766 USD")),
    ],
)
def test_costs_are_those_of_as_many_steps_as_cost_a_cent(per_step: float, tile: tuple[str, str]) -> None:
    verdict = replace(NOTHING, costs=ProfileCosts(currency="USD", money_per_step=per_step))
    (shown,) = page_of(ReportSource(job(0), verdict, at_us(0))).find(of_class="tiles").find_all("div")
    assert (shown.find("dt").text, shown.find("dd").text) == tile


def test_loaders_lines_and_memory_of_the_program_are_shown(page: Node) -> None:
    (loader, _) = section(page, "loading").table("Data loaders")
    assert (loader["Loader"], loader["Processes"], loader["Cores"]) == ("DataLoader(Flowers)", "2", "8")
    assert loader["Pinned memory"] == "no"
    assert [each.text for each in section(page, "loading").find("ul", of_class="notes").find_all("li")] == [
        "DataLoader(Flowers): pin_memory is off, so copies to the device cannot overlap with computing; "
        "its processes are started anew in every epoch."
    ]
    lines = section(page, "program").table("Lines of the program in 3,600 samples of worker_0")
    assert lines[0]["Line"] == "train.py:84 train_epoch"
    assert (lines[0]["Phase"], lines[0]["Share"]) == ("data wait", "45.3 %")
    held = section(page, "program").table("What held the memory of worker_0 at its peak, 7 GB in all")
    assert (held[0]["Holder"], held[0]["Size"]) == ("activations", "5.90 GB")


def test_traces_have_what_the_profiler_of_torch_showed(page: Node) -> None:
    traces = section(page, "traces")
    roles = {row["Role"]: row["Share"] for row in traces.table("Step time by role")}
    # The kernels of a step of 4,200 us take 2,221 us.
    assert roles["kernels"] == "52.9 %"
    assert roles["data loader"].startswith("37.")
    (gpu,) = traces.table("From the first step to the last")
    assert (gpu["Name"], gpu["Utilization"], gpu["Occupancy"]) == ("NVIDIA A10G", "52.9 %", "38.0 %")
    operators = traces.table("Operators, by their own time")
    assert operators[0]["Operator"] == "aten::convolution_backward"
    assert operators[0]["Calls"] == "6"
    kernels = traces.table("Kernels, by their time")
    assert kernels[0]["Mean"] == "980 µs"
    assert [row["Operator"].split("[")[0] for row in traces.table("Operators whose work is known")] == [
        "aten::addmm",
        "aten::mm",
        "aten::bmm",
    ]
    assert traces.table("Kernels by launch")[0]["Grid"] == "[196, 2, 1]"
    assert "Memory of GPU 0" in traces.text


def test_many_traces_are_listed_and_the_first_shown_in_full() -> None:
    trace = gpu_trace(steps=2)
    traces = {f"worker_{number}.json": trace for number in range(9)}
    page = page_of(ReportSource(job(0), NOTHING, at_us(0), traces=traces))
    assert len(section(page, "traces").table("Traces that were read")) == 9
    assert len(section(page, "traces").find_all("details", of_class="trace")) == 4


def test_what_is_missing_is_said_once() -> None:
    note = "The trace of worker_1 ends in the middle."
    profile = replace(job(0), notes=(note, "There are no samples of the hardware."))
    page = page_of(ReportSource(profile, replace(NOTHING, notes=(note,)), at_us(0)))
    items = [each.text for each in section(page, "notes").find_all("li")]
    assert items == [note, "There are no samples of the hardware."]


def test_a_page_without_anything_still_has_its_verdict_and_summary() -> None:
    page = page_of(ReportSource(job(0), NOTHING, at_us(0)))
    assert [each.attributes["id"] for each in page.find_all("section")] == ["verdict", "job"]
    assert "There is nothing to judge yet." in section(page, "verdict").text
    assert "No step was recorded" in section(page, "job").text


@pytest.mark.parametrize("name", sorted(HEALTHY))
def test_every_kind_of_profile_has_a_page(name: str) -> None:
    profile = HEALTHY[name]()
    page = page_of(ReportSource(profile, NOTHING, at_us(9000), rules=checked_rules(profile)))
    identifiers = [each.attributes["id"] for each in page.find_all() if "id" in each.attributes]
    assert len(set(identifiers)) == len(identifiers)
    links = [each.attributes["href"] for each in page.find_all("a")]
    assert all(link.removeprefix("#") in identifiers for link in links)


def test_the_page_needs_nothing_but_itself() -> None:
    text = write_report(slow_loading_source())[PAGE].decode()
    assert "http:" not in text.replace("http://www.w3.org", "")
    assert "https:" not in text
    page = read_page(text)
    assert not page.find_all("link")
    assert all("src" not in each.attributes for each in page.find_all("script"))
    policy = next(each for each in page.find_all("meta") if "http-equiv" in each.attributes).attributes["content"]
    assert policy.startswith("default-src 'none'; ")
    assert "script-src 'sha256-" in policy


def test_halves_of_characters_and_control_characters_do_not_stop_the_report() -> None:
    profile = replace(job(0), notes=("a\ud800b\0c\x1b[2J",))
    for name, content in write_report(ReportSource(profile, NOTHING, at_us(0))).items():
        text = content.decode()
        assert "\0" not in text, name
        assert "\x1b" not in text, name

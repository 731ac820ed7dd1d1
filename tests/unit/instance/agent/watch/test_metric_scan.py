"""Metric extraction with a real scanner process."""

import math
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from trainyard.formats.metrics import PointsFile, series_file
from trainyard.instance.agent.reports import Reports
from trainyard.instance.agent.watch import metric_scan
from trainyard.instance.agent.watch.metric_scan import FINAL_CPU_S, MetricScan
from trainyard.instance.agent.watch.metric_series import MetricSeries
from trainyard.instance.sandbox.processes import descendants
from trainyard.link.contract import FrameKind, MetricSpec
from trainyard.link.spool import SpoolWriter, read_frames
from trainyard.testing.eventually import eventually

JOB_UID = 54_331
LOSS = MetricSpec("loss", r"loss=(\S+)")
SLOW = MetricSpec("slow", r"(?:(a)|b|ab)*\d$")  # takes exponential time in lines of "ab"

Scan = Callable[..., MetricScan]


@pytest.fixture(params=[None, pytest.param(JOB_UID, marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root"))])
def scan(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scan]:
    made: list[MetricScan] = []
    with SpoolWriter(tmp_path / "spool") as spool:

        def make(*definitions: MetricSpec) -> MetricScan:
            reports = Reports(spool)
            series = MetricSeries(tmp_path / "metrics", reports=reports)
            made.append(MetricScan(definitions, series, reports=reports, uid=request.param))
            return made[-1]

        yield make
        for each in made:
            each.close()


def finish(scan: MetricScan) -> None:
    scan.finish(FINAL_CPU_S, is_over=lambda: False)


def points(folder: Path, name: str = "loss") -> list[tuple[int, float]]:
    batches = PointsFile(series_file(folder / "metrics", name)).read(0, 2**62)
    return [pair for batch in batches for pair in zip(batch.micros, batch.sums, strict=True)]


def payloads(folder: Path, kind: FrameKind) -> Sequence[dict[str, object]]:
    return [dict(frame.payload) for frame in read_frames(folder / "spool", 0).frames if frame.kind is kind]


def notes(folder: Path) -> list[object]:
    return [each["text"] for each in payloads(folder, FrameKind.NOTE)]


def scanner_pid() -> int:
    (pid,) = eventually(scanners)
    return pid


def scanners() -> list[int]:
    return [
        pid for pid in descendants(os.getpid()) if b"watch.metric_scanner" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_values_have_the_time_of_the_piece_that_ends_their_line(scan: Scan, tmp_path: Path) -> None:
    made = scan(LOSS)
    made.write(b"loss=1\nloss=", 1_000)
    made.write(b"2\nloss=3\n", 2_000)
    finish(made)
    assert points(tmp_path) == [(1_000, 1.0), (2_000, 2.0), (2_000, 3.0)]
    assert made.unscanned_bytes == 0
    assert notes(tmp_path) == []


def test_a_last_line_without_an_end_counts(scan: Scan, tmp_path: Path) -> None:
    made = scan(LOSS)
    made.write(b"loss=4", 1_000)
    finish(made)
    assert [value for _, value in points(tmp_path)] == [4.0]


def test_all_values_of_much_output_are_found_in_their_order(scan: Scan, tmp_path: Path) -> None:
    made = scan(LOSS)
    lines = [f"step {number} loss={number} of an ordinary training\n" for number in range(50_000)]
    for first in range(0, len(lines), 1000):
        made.write("".join(lines[first : first + 1000]).encode(), first + 1)
        made.step()
    finish(made)
    assert [value for _, value in points(tmp_path)] == [float(number) for number in range(50_000)]


def test_values_that_are_not_numbers_are_noted_at_the_end(scan: Scan, tmp_path: Path) -> None:
    made = scan(LOSS)
    made.write(f"loss={math.nan}\n".encode(), 1)
    finish(made)
    assert [(each["count"], each["has_lapsed"]) for each in payloads(tmp_path, FrameKind.METRIC)] == [(0, True)]
    assert notes(tmp_path) == ['Metric loss captured something that is not a finite number 1 times, such as "nan".']


@pytest.mark.parametrize(("last", "has_lapsed"), [("nan", True), ("-inf", True), ("1e999", True), ("3", False)])
def test_a_training_that_has_diverged_is_distinguished_from_one_that_recovered(
    scan: Scan, tmp_path: Path, last: str, has_lapsed: bool
) -> None:
    made = scan(LOSS)
    made.write(f"loss=2\nloss=nan\nloss={last}\n".encode(), 1)
    finish(made)
    told = payloads(tmp_path, FrameKind.METRIC)[-1]
    assert told.get("has_lapsed", False) is has_lapsed
    assert told["value"] == (2.0 if has_lapsed else 3.0)


def test_an_invalid_expression_is_noted_and_does_not_affect_other_metrics(scan: Scan, tmp_path: Path) -> None:
    made = scan(MetricSpec("bad", "("), LOSS)
    made.write(b"loss=1\n", 1)
    finish(made)
    assert [value for _, value in points(tmp_path)] == [1.0]
    assert [text for text in notes(tmp_path) if "Metric bad is not extracted" in str(text)]


def test_the_backlog_of_a_stuck_process_is_bounded_and_keeps_the_newest_output(
    scan: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_scan, "BACKLOG_BYTES", 1 << 20)
    made = scan(LOSS)
    os.kill(scanner_pid(), signal.SIGSTOP)
    written = 0
    for number in range(100):
        data = (f"loss={number:>10}\n" * 10_000).replace(" ", "0").encode()
        made.write(data, number)
        made.step()
        written += len(data)
    assert made.unscanned_bytes == written, "the process is stopped, and nobody waited for it"
    os.kill(scanner_pid(), signal.SIGCONT)
    finish(made)
    found = [value for _, value in points(tmp_path)]
    assert found[-1] == 99.0
    assert set(found) < set(map(float, range(100))), "no value was made of the ends of two lines"
    assert 0 < made.unscanned_bytes < written - (1 << 19)
    assert [text for text in notes(tmp_path) if f"{made.unscanned_bytes} bytes of the output were not" in str(text)]


def test_the_last_search_ends_when_its_time_is_over_or_the_instance_must_end(scan: Scan, tmp_path: Path) -> None:
    definitions = [MetricSpec(f"slow-{number}", SLOW.regex) for number in range(40)]
    data = b"ab" * 1000 + b"\n"
    made = scan(*definitions)
    made.write(data * 1000, 1)
    made.finish(0.2, is_over=lambda: False)
    assert made.unscanned_bytes > 0
    made = scan(*definitions)
    made.write(data * 1000, 1)
    made.finish(1000.0, is_over=lambda: True)
    assert made.unscanned_bytes == len(data) * 1000
    assert scanners() == []


def test_a_process_that_dies_loses_metrics_and_nothing_else(scan: Scan, tmp_path: Path) -> None:
    made = scan(LOSS)
    os.kill(scanner_pid(), signal.SIGKILL)

    made.write(b"loss=1\n", 1)
    eventually(lambda: is_idle(made))
    made.write(b"loss=2\n", 2)
    finish(made)
    assert str(notes(tmp_path)[0]).startswith("No more metrics are extracted, because the search for them failed")
    assert made.unscanned_bytes == len(b"loss=1\nloss=2\n")


def test_the_process_has_no_rights_and_no_secrets_of_the_agent(
    scan: Scan, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "of the yard")
    made = scan(LOSS)
    made.write(b"loss=1\n", 1)
    eventually(lambda: is_idle(made))
    status = Path(f"/proc/{scanner_pid()}/status").read_text()
    uid = request.node.callspec.params["scan"] or os.geteuid()
    assert f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}" in status
    assert "NoNewPrivs:\t1" in status
    if os.geteuid() == 0:  # only root may read this
        assert b"SECRET" not in Path(f"/proc/{scanner_pid()}/environ").read_bytes()


def is_idle(scan: MetricScan) -> bool:
    scan.step()
    return not scan.is_busy

"""What trials of advice measured, from the steps that their agents kept."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.control.bench import Bench, open_bench
from trainyard.formats.profiles.contract import CHANGES_VARIABLE, TRIAL_TAG
from trainyard.formats.profiles.step_times import HEADER, SUFFIX, StepRow, encode_row
from trainyard.foundation.clock import to_micros
from trainyard.server.records.contract import Claim

STEPS = 40
WORKERS = {"loader_workers": "2"}
BATCH = {"batch_size": "64"}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A yard in which mnist has run."""
    with open_bench(tmp_path) as opened:
        end(opened, opened.start("mnist"), "mnist")
        yield opened


def end(bench: Bench, claim: Claim, name: str) -> None:
    bench.agent(name).end()
    bench.turn(bench.work.claim() or claim, times=3)
    bench.watch.forward(10)


def write_steps(bench: Bench, name: str, step_us: int, facts: dict[str, Any]) -> None:
    folder = bench.agent(name).folder.steps
    folder.mkdir(parents=True, exist_ok=True)
    start_us = to_micros(bench.watch())
    times = [(start_us + number * step_us, start_us + (number + 1) * step_us) for number in range(STEPS)]
    rows = [StepRow(number, 1, "TRAIN", start, end, (0,) * 8) for number, (start, end) in enumerate(times)]
    (folder / f"worker_0{SUFFIX}").write_bytes(HEADER + b"".join(map(encode_row, rows)))
    (folder / "worker_0.json").write_text(json.dumps(facts))


def run_trial(
    bench: Bench, number: int, changes: dict[str, str], step_us: int, *, token: str = "abc123", samples: int = 32
) -> None:
    name = f"mnist-trial-{token}-{number}"
    environment = {CHANGES_VARIABLE: json.dumps(changes)} if changes else {}
    claim = bench.start(name, Environment=environment, Tags=[{"Key": TRIAL_TAG, "Value": "mnist"}])
    write_steps(bench, name, step_us, {"samples_per_step": samples, "changes": changes})
    end(bench, claim, name)


def results(bench: Bench) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = bench.anna("trainyard", "ListAdviceTrials", TrainingJobName="mnist")["Results"]
    return found


def test_pairs_of_trials_give_a_gain_with_its_interval(bench: Bench) -> None:
    for number, (changes, step_us) in enumerate([({}, 9_000), (WORKERS, 3_000), (WORKERS, 3_100), ({}, 9_100)], 1):
        run_trial(bench, number, changes, step_us)
    (found,) = results(bench)
    assert found["Changes"] == WORKERS
    assert found["Speedup"] == pytest.approx(2.97, abs=0.05)
    assert found["Low"] < found["Speedup"] < found["High"]
    assert (found["Pairs"], found["IsPerSample"], found.get("Problem")) == (2, True, None)
    assert found["Trials"] == ["mnist-trial-abc123-2", "mnist-trial-abc123-3"]


def test_batches_of_other_sizes_are_compared_by_sample_and_a_single_pair_has_no_interval(bench: Bench) -> None:
    run_trial(bench, 1, {}, 4_000, samples=32)
    run_trial(bench, 2, BATCH, 5_000, samples=64)
    (found,) = results(bench)
    assert found["Speedup"] == pytest.approx(4_000 / 32 / (5_000 / 64), rel=0.01)
    assert (found["Pairs"], found.get("Low"), found.get("High")) == (1, None, None)


def test_the_last_verification_of_a_change_counts(bench: Bench) -> None:
    for token, changed_us in (("aaaaaa", 8_000), ("bbbbbb", 2_000)):
        run_trial(bench, 1, {}, 8_000, token=token)
        run_trial(bench, 2, WORKERS, changed_us, token=token)
    (found,) = results(bench)
    assert found["Speedup"] == pytest.approx(4, rel=0.01)


def test_a_change_that_the_program_did_not_make_is_a_problem(bench: Bench) -> None:
    run_trial(bench, 1, {}, 4_000)
    run_trial(bench, 2, WORKERS, 4_000)
    (bench.agent("mnist-trial-abc123-2").folder.steps / "worker_0.json").write_text("{}")
    (found,) = results(bench)
    assert "did not take over the change of loader workers" in found["Problem"]
    assert found.get("Speedup") is None


def test_other_jobs_with_the_tag_are_left_out(bench: Bench) -> None:
    bench.create("unrelated", Tags=[{"Key": TRIAL_TAG, "Value": "mnist"}])
    bench.create("mnist-trial-cccccc-1", Tags=[{"Key": TRIAL_TAG, "Value": "mnist"}])
    assert results(bench) == []

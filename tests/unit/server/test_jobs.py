"""Training jobs as the records keep them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.server.control.bench import Bench, open_bench
from trainyard.server.jobs import change_to, due_at, is_of_spot, job_of, outline_of, waits_since


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with open_bench(tmp_path) as opened:
        yield opened


def test_an_outline_has_all_that_lists_show_and_nothing_of_the_attempts(bench: Bench) -> None:
    claim = bench.start()
    bench.agent().end("failed", reason="The program ended with exit code 1.")
    assert bench.turn(claim, times=2) is None
    whole, outline = job_of(bench.resource()), outline_of(bench.resource())

    for member in ("name", "arn", "created_at", "status", "secondary", "ended_at", "plan"):
        assert getattr(outline, member) == getattr(whole, member)
    assert whole.ended_at is not None
    assert whole.attempts
    assert not outline.attempts


def test_the_outline_of_a_job_that_keeps_a_warm_pool_is_the_whole_job(bench: Bench) -> None:
    bench.start()
    job = bench.job()
    kept = replace(job, plan=replace(job.plan, keep_alive_s=60))
    resource = bench.resource()
    changed = replace(resource, body=change_to(resource, kept).body or {})

    assert outline_of(changed) == kept


@pytest.mark.parametrize("is_spot", [False, True])
def test_when_a_job_is_due_tells_since_when_it_waits_and_whether_it_is_on_spot(bench: Bench, is_spot: bool) -> None:
    job = job_of(bench.create())
    due = due_at(replace(job, plan=replace(job.plan, is_spot=is_spot)))
    assert due is not None
    assert (is_of_spot(due), waits_since(due)) == (is_spot, job.created_at)

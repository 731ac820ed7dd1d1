import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.control.profiling.profiles import Profiled
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Attributes
from trainyard.server.control.profiling import trace_copies
from trainyard.server.control.profiling.trace_copies import (
    MAX_TRACES,
    CopiedTraces,
    TraceCopies,
    read_mark,
    write_mark,
)

TRACE = json.dumps(
    {
        "schemaVersion": 1,
        "traceEvents": [
            {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1.8e15 + n, "dur": 1}
            for n in range(10)
        ],
    }
).encode()


def put_trace(profiled: Profiled, name: str, content: bytes, *, below: str = "output/mnist/profiler-output") -> None:
    where = Location(BucketRef(profiled.bench.anna.account, "data"), f"{below}/{name}")
    writer = profiled.bench.anna.yard.objects.writer(where, Attributes())
    writer.write(content)
    writer.commit(now=profiled.bench.watch())
    profiled.bench.watch.forward(1)


def fetch(profiled: Profiled, folder: Path) -> CopiedTraces:
    return TraceCopies(profiled.bench.anna.yard.objects).fetch(profiled.bench.job(), folder)


def names(copied: CopiedTraces) -> list[str]:
    return [place.uri.rpartition("/")[2] for place in copied.places]


def test_the_newest_traces_of_the_program_are_copied_and_nothing_else(profiled: Profiled, tmp_path: Path) -> None:
    profiled.start()
    for number in range(MAX_TRACES + 1):
        put_trace(profiled, f"framework/pytorch/detailed_profiling/{number}/{number}.trace.json", TRACE)
    put_trace(profiled, "framework/pevents/2026070112/1_algo-1_model_timeline.json", b"[]")
    put_trace(profiled, "system/incremental/1.algo-1.json", b"{}")
    copied = fetch(profiled, tmp_path / "traces")
    assert names(copied) == [f"{number}.trace.json" for number in range(MAX_TRACES, 0, -1)]
    assert Path(copied.places[0].path).read_bytes() == TRACE
    assert any(f"newest {MAX_TRACES}" in note for note in copied.notes)


@pytest.mark.parametrize("is_disabled", [True, False])
def test_traces_for_tensorboard_are_read_where_they_are_only_if_the_agent_stores_none(
    profiled: Profiled, tmp_path: Path, *, is_disabled: bool
) -> None:
    board: dict[str, Any] = {"TensorBoardOutputConfig": {"S3OutputPath": "s3://data/board"}}
    profiled.start(**board, ProfilerConfig={"DisableProfiler": is_disabled})
    uri = profiled.bench.job().plan.tensorboard_uri.removeprefix("s3://data/")
    put_trace(profiled, "run/host_1.123.pt.trace.json.gz", TRACE, below=uri.rstrip("/"))
    assert len(names(fetch(profiled, tmp_path / "traces"))) == is_disabled


@pytest.mark.parametrize("name", ["my_trace.json", "Trace-7.json.gz", "plugins/profile/1/host.trace.json.gz"])
def test_traces_that_programs_exported_under_other_names_count(name: str, profiled: Profiled, tmp_path: Path) -> None:
    profiled.start()
    put_trace(profiled, f"framework/pytorch/user/algo-1/data/{name}", TRACE)
    assert len(names(fetch(profiled, tmp_path / "traces"))) == 1


def test_a_copy_is_made_once_and_removed_when_newer_traces_replace_it(profiled: Profiled, tmp_path: Path) -> None:
    profiled.start()
    folder = tmp_path / "traces"
    put_trace(profiled, "framework/a.trace.json", TRACE)
    (first,) = fetch(profiled, folder).places
    write_mark(first, "")
    changed = Path(first.path).stat().st_mtime_ns
    (again,) = fetch(profiled, folder).places
    assert (again, Path(again.path).stat().st_mtime_ns, read_mark(again)) == (first, changed, "")
    put_trace(profiled, "framework/a.trace.json", TRACE + b" ")
    (newer,) = fetch(profiled, folder).places
    assert newer.path != first.path
    assert read_mark(newer) is None
    assert [each.name for each in folder.iterdir()] == [Path(newer.path).name]


def test_a_trace_that_is_too_large_is_left_out_with_a_note(
    profiled: Profiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiled.start()
    monkeypatch.setattr(trace_copies, "MAX_TRACE_BYTES", len(TRACE) - 1)
    put_trace(profiled, "framework/a.trace.json", TRACE)
    put_trace(profiled, "framework/b.trace.json", b"{}")
    copied = fetch(profiled, tmp_path / "traces")
    assert names(copied) == ["b.trace.json"]
    assert "a.trace.json is left out" in copied.notes[0]


def test_a_bucket_that_is_gone_gives_a_note(profiled: Profiled, tmp_path: Path) -> None:
    profiled.start(ProfilerConfig={"S3OutputPath": "s3://data/profiles"})
    objects, bucket = profiled.bench.anna.yard.objects, BucketRef(profiled.bench.anna.account, "data")
    objects.delete_many(bucket, [each.key for each in objects.list_objects(bucket).objects])
    objects.delete_bucket(bucket)
    copied = fetch(profiled, tmp_path / "traces")
    assert copied.places == ()
    assert "could not be listed" in copied.notes[0]

import gzip
import os
from pathlib import Path

import pytest

from trainyard.formats.profiles.contract import PARTS_FOLDER
from trainyard.instance.hook.profiling.profile_output import ProfileOutput

AT_US = 1_604_480_400_000_000  # 2020-11-04, 09:00 UTC


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_files_lie_where_aws_has_them(tmp_path: Path) -> None:
    output = ProfileOutput(tmp_path, host="algo-1", worker="worker_2")
    output.write_trace(7, AT_US, _save)
    output.write_python_profile("cProfile", "train-1_train-2", {"python_stats": b"stats"})
    output.write_events(AT_US, "pythontimeline", b"[]")
    node = f"{os.getpid()}-algo-1"
    assert files(tmp_path) == [
        f"framework/pevents/2020110409/{AT_US}_{node}_pythontimeline.json",
        f"framework/pytorch/cProfile/{node}/train-1_train-2/python_stats",
        f"framework/pytorch/detailed_profiling/2020110409/000000007/algo-1-worker_2.{AT_US}.pt.trace.json.gz",
    ]
    assert gzip.decompress((tmp_path / files(tmp_path)[2]).read_bytes()) == b"{}"


def test_a_trace_without_an_end_is_not_kept(tmp_path: Path) -> None:
    output = ProfileOutput(tmp_path, host="algo-1", worker="worker_0")

    def save(path: Path) -> None:
        path.write_text('{"traceEvents": [')
        path.with_name("trace.json.tmp").write_text("torch leaves this")

    with pytest.raises(OSError, match="not written to its end"):
        output.write_trace(1, AT_US, save)
    assert files(tmp_path) == []
    assert not (tmp_path / PARTS_FOLDER).exists()


def test_what_one_process_writes_is_limited(tmp_path: Path) -> None:
    output = ProfileOutput(tmp_path, host="algo-1", worker="worker_0", max_bytes=10)
    output.write_events(AT_US, "a", b"x" * 6)
    with pytest.raises(OSError, match="as many bytes of profiles as it may"):
        output.write_events(AT_US, "b", b"x" * 6)
    output.write_events(AT_US, "c", b"x" * 4)
    assert [name[-6:] for name in files(tmp_path)] == ["a.json", "c.json"]


def test_a_full_disk_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainyard.instance.hook.profiling.profile_output._MIN_FREE_BYTES", 1 << 60)
    with pytest.raises(OSError, match="of the disk are free"):
        ProfileOutput(tmp_path, host="algo-1", worker="worker_0").write_events(AT_US, "a", b"[]")
    assert files(tmp_path) == []


def test_another_rank_that_removes_the_shared_folder_costs_no_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, removed = os.mkdir, list[Path]()

    def make_and_lose(path: Path, mode: int = 0o777) -> None:
        make(path, mode)
        # What another rank does when its own folder was the last one, here at the worst moment.
        if Path(path).name == PARTS_FOLDER and not removed:
            removed.append(path)
            Path(path).rmdir()

    monkeypatch.setattr(os, "mkdir", make_and_lose)
    ProfileOutput(tmp_path, host="algo-1", worker="worker_0").write_events(AT_US, "a", b"[]")
    assert removed
    assert len(files(tmp_path)) == 1


def _save(path: Path) -> None:
    path.write_text("{}")

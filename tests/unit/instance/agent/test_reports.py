"""The frames that an instance writes."""

import errno
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from trainyard.instance.agent.reports import Reports
from trainyard.instance.sandbox.contract import ProgramExit
from trainyard.link.contract import FrameKind
from trainyard.link.doorbell import Doorbell
from trainyard.link.spool import SpoolWriter, read_frames


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[SpoolWriter]:
    with SpoolWriter(tmp_path / "spool") as opened:
        yield opened


def test_frames_are_read_as_they_were_written(spool: SpoolWriter, tmp_path: Path) -> None:
    reports = Reports(spool)
    reports.report_status("Downloading", "Downloading input data")
    reports.note("memory is not limited here")
    reports.report_metric("loss", 0.5, at_us=7, count=3)
    reports.report_exit(ProgramExit(None, 9, is_oom=True))
    reports.report_artifact("model", "s3://yard/model.tar.gz", size=10)
    reports.report_end("failed", "because", card={"kind": "user error"})
    frames = read_frames(tmp_path / "spool", 0).frames
    assert [(frame.kind, dict(frame.payload)) for frame in frames] == [
        (FrameKind.STATUS, {"status": "Downloading", "message": "Downloading input data"}),
        (FrameKind.NOTE, {"text": "memory is not limited here"}),
        (FrameKind.METRIC, {"name": "loss", "value": 0.5, "at_us": 7, "count": 3}),
        (FrameKind.EXITED, {"code": None, "signal": 9, "is_oom": True}),
        (FrameKind.ARTIFACT, {"kind": "model", "uri": "s3://yard/model.tar.gz", "size": 10}),
        (FrameKind.ENDED, {"outcome": "failed", "reason": "because", "card": {"kind": "user error"}}),
    ]


def test_a_phase_that_ends_in_an_error_is_reported_too(spool: SpoolWriter, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Reports(spool).phase("download"):
        _ = 1 / 0
    (frame,) = read_frames(tmp_path / "spool", 0).frames
    assert frame.payload["name"] == "download"
    assert frame.payload["started_us"] <= frame.payload["ended_us"] <= frame.at_us


def test_a_full_disk_loses_notes_but_not_the_outcome(spool: SpoolWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    # A mock, because a full disk needs a file system of its own.
    monkeypatch.setattr(os, "write", full)
    reports = Reports(spool)
    reports.note("lost")
    reports.report_metric("loss", 1.0, at_us=1, count=1)
    with pytest.raises(OSError, match="No space left"):
        reports.report_end("completed", "")


def test_the_doorbell_rings_for_what_users_wait_for_and_for_nothing_else(spool: SpoolWriter, tmp_path: Path) -> None:
    reports = Reports(spool)
    with closing(Doorbell(tmp_path / "doorbell")) as doorbell:
        reports.report_status("Downloading", "before it knows where to ring")
        assert doorbell.read() == set()
        reports.use_doorbell(tmp_path / "doorbell", "job-1")

        reports.note("a note")
        reports.report_metric("loss", 0.5, at_us=7, count=3)
        assert doorbell.read() == set()
        reports.report_status("Training", "")
        assert doorbell.read() == {"job-1"}
        reports.report_end("completed", "")
        assert doorbell.read() == {"job-1"}

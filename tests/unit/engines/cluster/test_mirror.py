"""A mirror is what the node had at some moment, whoever dies."""

import fcntl
import json
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from trainyard.engines.cluster.contract import FileChunk
from trainyard.engines.cluster.mirror import MirrorUpdate, apply_chunks, collect_update, mirrored_sizes, sync_mirror
from trainyard.formats.logs import LogReader, LogWriter
from trainyard.formats.logs.segments import RECORD_BYTES, segments_of
from trainyard.formats.metrics import Point, PointsFile, series_file
from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries
from trainyard.formats.profiles.hardware_reader import read_hardware
from trainyard.formats.profiles.hardware_segments import hardware_segments
from trainyard.formats.profiles.hardware_writer import HardwareWriter
from trainyard.formats.profiles.step_times import FACTS_SUFFIX, HEADER, TRAIN, StepRow, encode_row
from trainyard.foundation.errors import Conflict, Corrupt
from trainyard.link.contract import FrameKind
from trainyard.link.folders import InstanceFolder
from trainyard.link.spool import SpoolWriter, last_frame, read_frames

SEGMENT = 4096

SERIES = HardwareSeries(HardwareMetric.CPU_PERCENT)
OTHER = HardwareSeries(HardwareMetric.MEMORY_PERCENT)


@pytest.fixture
def node(tmp_path: Path) -> InstanceFolder:
    (tmp_path / "node").mkdir()
    return InstanceFolder(tmp_path / "node")


@pytest.fixture
def mirror(tmp_path: Path) -> InstanceFolder:
    return InstanceFolder(tmp_path / "mirror")


class Agent:
    """Writes what agents write, a little at a time."""

    def __init__(self, folder: InstanceFolder, random_: random.Random) -> None:
        self.folder = folder
        self.spool = SpoolWriter(folder.spool)
        self.log = LogWriter(folder.logs, segment_bytes=SEGMENT)
        self.samples = HardwareWriter(folder.hardware, segment_bytes=SEGMENT)
        self._random = random_
        self._written = 0

    def work(self) -> None:
        self._written += 1
        self._random.choice((self._report, self._print, self._measure, self._note, self._sample, self._step))()

    def end(self) -> None:
        self.log.close()
        self.samples.close()
        self.spool.append(FrameKind.ENDED, {"outcome": "completed"}, at_us=self._written)
        self.spool.close()

    def _report(self) -> None:
        self.spool.append(FrameKind.NOTE, {"text": "x" * self._random.randrange(300)}, at_us=self._written)

    def _print(self) -> None:
        self.log.append(f"line {self._written} {'y' * self._random.randrange(900)}\n".encode(), self._written)

    def _measure(self) -> None:
        series = series_file(self.folder.metrics, self._random.choice(("loss", "a/b c", "lr")))
        PointsFile(series).append([Point.of(float(self._written), self._written)], durable=False)

    def _sample(self) -> None:
        series = [SERIES, OTHER][: self._random.randrange(1, 3)]
        self.samples.begin(series, 1_000_000)
        self.samples.append(self._written, [float(self._written)] * len(series))
        self.samples.flush()
        PointsFile(series_file(self.folder.hardware, "CPUUtilization")).append(
            [Point.of(float(self._written), self._written)], durable=False
        )

    def _step(self) -> None:
        self.folder.steps.mkdir(exist_ok=True)
        row = StepRow(self._written, 1, TRAIN, self._written, self._written + 1, [0] * 8)
        with (self.folder.steps / "worker_0.steps").open("ab") as file:
            file.write(encode_row(row) if file.tell() else HEADER + encode_row(row))
        # As the agent copies facts: whole files, which take the place of the ones before.
        new = self.folder.steps / "worker_0.json.part"
        new.write_text(json.dumps({"threads": self._written % 10}))
        new.replace(self.folder.steps / "worker_0.json")

    def _note(self) -> None:
        with self.folder.agent_log.open("a") as file:
            file.write(f"said {self._written}\n")


def pull(node: InstanceFolder, mirror: InstanceFolder, *, limit_bytes: int = 1 << 20) -> MirrorUpdate:
    found = collect_update(node, mirrored_sizes(mirror), limit_bytes=limit_bytes)
    apply_chunks(mirror, found.chunks)
    return found


def contents(folder: InstanceFolder) -> dict[str, bytes]:
    return {str(path.relative_to(folder.root)): path.read_bytes() for path in folder.root.rglob("*") if path.is_file()}


def interrupted(chunks: Sequence[FileChunk], random_: random.Random) -> list[FileChunk]:
    """What is applied of chunks when the one who applies is killed: some, and a part of the next if it is appended."""
    count = random_.randrange(len(chunks) + 1)
    cut = [
        replace(chunk, data=chunk.data[: random_.randrange(len(chunk.data) + 1)])
        for chunk in chunks[count:][:1]
        if is_grown(chunk.path)
    ]
    return [*chunks[:count], *cut]


@pytest.mark.parametrize("seed", range(8))
def test_a_mirror_is_true_at_every_moment_and_whole_in_the_end(
    node: InstanceFolder, mirror: InstanceFolder, seed: int
) -> None:
    random_ = random.Random(seed)
    agent = Agent(node, random_)
    for _ in range(60):
        for _ in range(random_.randrange(8)):
            agent.work()
        found = collect_update(node, mirrored_sizes(mirror), limit_bytes=random_.choice((100, 2000, 1 << 20)))
        apply_chunks(mirror, interrupted(found.chunks, random_))
        assert all(contents(node)[path].startswith(data) for path, data in contents(mirror).items() if is_grown(path))
        assert_readable(mirror)
    agent.end()
    while not pull(node, mirror, limit_bytes=random_.choice((100, 2000))).is_all:
        assert_readable(mirror)
    assert contents(mirror) == contents(node)


def is_grown(path: str) -> bool:
    return not path.endswith(FACTS_SUFFIX)


def assert_readable(mirror: InstanceFolder) -> None:
    """The readers of a yard never meet an index without its bytes, nor the end before what came before it."""
    for segment in segments_of(mirror.logs):
        assert segment.count == segment.index_file.stat().st_size // RECORD_BYTES
    for event in LogReader(mirror.logs).scan():
        assert event.text.startswith("line ")
    samples = read_hardware(mirror.hardware)
    assert samples.series.get(SERIES, samples.times_us).tolist() == samples.times_us.tolist()
    frames = read_frames(mirror.spool, 0).frames
    assert [frame.sequence for frame in frames] == list(range(1, len(frames) + 1))


def test_the_last_frame_comes_when_all_else_is_there(node: InstanceFolder, mirror: InstanceFolder) -> None:
    agent = Agent(node, random.Random(1))
    for _ in range(100):
        agent.work()
    agent.end()

    pulls = 1
    while not pull(node, mirror, limit_bytes=1000).is_all:
        pulls += 1
        last = last_frame(mirror.spool)
        assert last is None or last.kind is not FrameKind.ENDED

    assert pulls > 10
    assert contents(mirror) == contents(node)


def test_frames_are_not_held_up_by_a_flood_of_log(node: InstanceFolder, mirror: InstanceFolder) -> None:
    agent = Agent(node, random.Random(1))
    agent.log.append(b"z" * 3000 + b"\n", 1)
    agent.spool.append(FrameKind.STATUS, {"status": "Training"}, at_us=1)

    assert not pull(node, mirror, limit_bytes=500).is_all

    assert [frame.kind for frame in read_frames(mirror.spool, 0).frames] == [FrameKind.STATUS]


def test_a_frame_that_is_being_written_is_not_copied(node: InstanceFolder, mirror: InstanceFolder) -> None:
    agent = Agent(node, random.Random(1))
    agent.spool.append(FrameKind.NOTE, {"text": "whole"}, at_us=1)
    with node.spool.open("ab") as spool:
        spool.write(b'12345678 [2,"note"')

    pull(node, mirror)

    assert mirror.spool.read_bytes().endswith(b"\n")


def test_bytes_of_a_log_without_a_record_may_be_taken_back(node: InstanceFolder, mirror: InstanceFolder) -> None:
    agent = Agent(node, random.Random(1))
    agent.log.append(b"line kept\n", 1)
    segment = segments_of(node.logs)[0]
    with segment.log_file.open("ab") as log:
        log.write(b"line that the disk refused the rest of")

    pull(node, mirror)

    assert (mirror.logs / segment.log_file.name).read_bytes() == b"line kept\n"


def test_points_that_are_being_appended_wait(node: InstanceFolder, mirror: InstanceFolder) -> None:
    series = series_file(node.metrics, "loss")
    PointsFile(series).append([Point.of(1.0, 1)])
    with series.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not pull(node, mirror).is_all
        assert not mirror.metrics.exists()

    assert pull(node, mirror).is_all
    assert PointsFile(series_file(mirror.metrics, "loss")).last_micros() == 1


def test_log_segments_dropped_by_the_limit_leave_the_mirror_too(node: InstanceFolder, mirror: InstanceFolder) -> None:
    with LogWriter(node.logs, segment_bytes=100) as log:
        for number in range(10):
            log.append(f"line {number} {'x' * 80}\n".encode(), number)
            pull(node, mirror)
        for segment in segments_of(node.logs)[3:6]:
            segment.index_file.unlink()
            segment.log_file.unlink()

        found = pull(node, mirror)

    assert [Path(chunk.path).suffix for chunk in found.chunks] == [".index"] * 3 + [".log"] * 3
    assert contents(mirror) == contents(node)
    assert [event.text[:6] for event in LogReader(mirror.logs).scan()] == [f"line {n}" for n in (0, 1, 2, 6, 7, 8, 9)]


def test_samples_dropped_by_the_limit_leave_the_mirror_too(node: InstanceFolder, mirror: InstanceFolder) -> None:
    with HardwareWriter(node.hardware, limit_bytes=4000, segment_bytes=400) as samples:
        samples.begin([SERIES], 1_000_000)
        for number in range(1, 500):
            samples.append(number, [number])
            samples.flush()
            if number % 40 == 0:
                pull(node, mirror)
    pull(node, mirror)

    assert contents(mirror) == contents(node)
    assert len(read_hardware(mirror.hardware)) < 499


def test_a_sample_that_is_being_written_is_not_copied(node: InstanceFolder, mirror: InstanceFolder) -> None:
    with HardwareWriter(node.hardware) as samples:
        samples.begin([SERIES], 1_000_000)
        samples.append(1, [1.0])
    (segment,) = hardware_segments(node.hardware)
    whole = segment.file.read_bytes()
    segment.file.write_bytes(whole + b"\x02\0\0\0\0")

    assert pull(node, mirror).is_all

    assert contents(mirror) == {f"hardware/{segment.file.name}": whole}


def test_facts_are_replaced_when_they_change_even_by_no_byte_more(node: InstanceFolder, mirror: InstanceFolder) -> None:
    node.steps.mkdir()
    facts = node.steps / "worker_0.json"
    for count, value in enumerate((b'{"threads": 1}', b'{"threads": 2}', b"{}", b""), 1):
        facts.write_bytes(value)
        os.utime(facts, ns=(count * 1_000_000, count * 1_000_000))
        assert [chunk.path for chunk in pull(node, mirror).chunks] == ["steps/worker_0.json"]
        assert contents(mirror) == {"steps/worker_0.json": value}
        assert pull(node, mirror) == MirrorUpdate([], is_all=True)


def test_facts_that_exceed_a_small_budget_come_in_the_end(node: InstanceFolder, mirror: InstanceFolder) -> None:
    node.steps.mkdir()
    (node.steps / "worker_0.steps").write_bytes(b"x" * 90)
    (node.steps / "worker_0.json").write_bytes(b"y" * 500)
    while not pull(node, mirror, limit_bytes=100).is_all:
        pass
    assert contents(mirror) == contents(node)


def test_a_node_that_lost_everything_takes_nothing_from_the_mirror(
    node: InstanceFolder, mirror: InstanceFolder, tmp_path: Path
) -> None:
    agent = Agent(node, random.Random(3))
    for _ in range(30):
        agent.work()
    pull(node, mirror)
    before = contents(mirror)

    assert pull(InstanceFolder(tmp_path / "anew"), mirror) == MirrorUpdate([], is_all=True)

    assert contents(mirror) == before


def test_what_was_applied_before_is_ignored(mirror: InstanceFolder) -> None:
    for chunk in (FileChunk("spool", 0, b"abc"), FileChunk("spool", 0, b"abc"), FileChunk("spool", 1, b"bcdef")):
        apply_chunks(mirror, [chunk])

    assert mirror.spool.read_bytes() == b"abcdef"


def test_a_piece_that_would_leave_a_gap_is_refused(mirror: InstanceFolder) -> None:
    apply_chunks(mirror, [FileChunk("spool", 0, b"abc")])

    with pytest.raises(Conflict, match="3 bytes"):
        apply_chunks(mirror, [FileChunk("spool", 4, b"e")])

    assert mirror.spool.read_bytes() == b"abc"


@pytest.mark.parametrize(
    "chunk",
    [
        FileChunk("../spool", 0, b"x"),
        FileChunk("/etc/hosts", 0, b"x"),
        FileChunk("spec.json", 0, b"x"),
        FileChunk("logs/../spec.json", 0, b"x"),
        FileChunk("metrics/a/b.points", 0, b"x"),
        FileChunk("hardware/a/b.points", 0, b"x"),
        FileChunk("hardware/1.samples", 0, b"x"),
        FileChunk("steps/../spec.json", 0, b"x"),
        FileChunk("steps/worker_0/1.json", 0, b"x"),
        FileChunk("steps/worker_0.json", 0, b"", is_removed=True),
        FileChunk("hardware/CPUUtilization.points", 0, b"", is_removed=True),
        FileChunk("spool", 0, b"", is_removed=True),
    ],
)
def test_a_node_writes_and_removes_nothing_but_what_is_mirrored(mirror: InstanceFolder, chunk: FileChunk) -> None:
    with pytest.raises(Corrupt):
        apply_chunks(mirror, [chunk])

    assert not mirror.root.exists()


def test_a_mirror_of_nothing_settles(mirror: InstanceFolder) -> None:
    mirror.root.mkdir()
    sync_mirror(mirror)
    assert mirrored_sizes(mirror) == {}

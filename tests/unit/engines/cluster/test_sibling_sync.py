"""What comes to the first instance of the others."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from trainyard.engines.cluster import sibling_sync
from trainyard.engines.cluster.folder_tar import FolderTar
from trainyard.engines.cluster.sibling_sync import SiblingSync
from trainyard.engines.cluster.tensor_sync import TensorFiles
from trainyard.foundation.errors import Unavailable
from trainyard.link.contract import DebuggerSpec, FrameKind, InstanceSpec, RuleSpec, SyncSpec
from trainyard.link.folders import InstanceFolder, InstanceRef
from trainyard.link.spool import SpoolWriter, read_frames
from trainyard.testing.engines.samples import SampleEnvironment, attempt_specs
from trainyard.testing.eventually import eventually


class Cluster:
    """Another node, which does not always answer, and where the second of two instances lies; the first lies here."""

    def __init__(self, root: Path) -> None:
        specs = attempt_specs(SampleEnvironment(root), count=2)
        self.spec: InstanceSpec = replace(specs[0], addresses=("10.0.0.1", "10.0.0.2"))
        self.here = root / "here"
        other = InstanceRef.of(specs[1])
        self.other, self.brought = other.folder(root / "there"), other.folder(self.here)
        for folder in (self.other, InstanceRef.of(self.spec).folder(self.here)):
            folder.root.mkdir(parents=True)
        self.spool = SpoolWriter(self.other.spool)
        self.asked: list[str] = []
        self._luck = Random(0)

    def fetch(self, name: str, path: str, offset: int) -> bytes:
        assert name == "algo-2"
        self.asked.append(path)
        if self._luck.random() < 0.3:
            raise Unavailable("The node does not answer.")
        if path == "spool":
            return self.other.spool.read_bytes()[offset:]
        if path == "activity":
            return json.dumps({"algo-1": 5000.0, "algo-2": 100.0}).encode()
        kind, _, wanted = path.partition("/")
        if kind == "tensors":
            files = TensorFiles(self.other.ml, "output/tensors")
            return files.read(wanted, offset) if wanted else files.list_changed(offset)
        return FolderTar(self.other.root, path).read(offset)

    def seen(self) -> list[FrameKind]:
        return [frame.kind for frame in read_frames(self.brought.spool, 0).frames]

    @contextmanager
    def bringing(self) -> Iterator[SiblingSync]:
        is_over = threading.Event()
        brings = SiblingSync(self.here, self.spec, self.fetch, is_over=is_over.is_set)
        brings.start()
        yield brings
        is_over.set()
        eventually(lambda: not brings.is_alive)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(sibling_sync, "_SYNC_INTERVAL_S", 0.005)
    return Cluster(tmp_path)


def write_results(folder: InstanceFolder) -> None:
    for path in ("model", "output/data"):
        (folder.ml / path).mkdir(parents=True)
        (folder.ml / path / "left").write_text(path)


def test_frames_come_as_they_are_reported_and_the_last_activity_with_them(cluster: Cluster) -> None:
    with cluster.bringing():
        cluster.spool.append(FrameKind.STATUS, {"status": "Training"}, at_us=1)
        eventually(lambda: cluster.seen() == [FrameKind.STATUS])
        eventually(cluster.brought.activity.exists)
        cluster.spool.append(FrameKind.NOTE, {"text": "more"}, at_us=2)
        eventually(lambda: cluster.seen() == [FrameKind.STATUS, FrameKind.NOTE])

    assert "ml/model" not in cluster.asked
    assert time.time() - cluster.brought.activity.stat().st_mtime == pytest.approx(100, abs=20)
    assert not (cluster.brought.root.parent / "algo-1" / "activity").exists()  # which its own agent knows better


@pytest.mark.parametrize("kinds", [[FrameKind.EXITED], [FrameKind.ENDED], [FrameKind.EXITED, FrameKind.ENDED]])
def test_the_results_of_an_instance_that_shows_as_ended_are_here(cluster: Cluster, kinds: list[FrameKind]) -> None:
    write_results(cluster.other)
    cluster.spool.append(FrameKind.NOTE, {"text": "before"}, at_us=1)
    for kind in kinds:
        cluster.spool.append(kind, {"outcome": "completed"}, at_us=2)

    def is_at_rest() -> bool:
        seen = cluster.seen()
        left = [path.read_text() for path in cluster.brought.ml.rglob("left")]
        assert len(seen) < 2 or sorted(left) == ["model", "output/data"]
        return seen == [FrameKind.NOTE, *kinds]

    with cluster.bringing():
        eventually(is_at_rest)


def debugged(spec: InstanceSpec, rule: RuleSpec) -> InstanceSpec:
    return replace(spec, debugger=DebuggerSpec({}, SyncSpec("s3://yard/t", "/opt/ml/output/tensors"), [rule]))


@pytest.mark.parametrize(
    "rule", [RuleSpec("all", "ReplicaDivergence", is_beside=True), RuleSpec("own", "Mine", source="s3://yard/mine.py")]
)
def test_the_tensors_of_an_instance_that_shows_as_ended_are_where_rules_evaluate_them(
    cluster: Cluster, rule: RuleSpec
) -> None:
    cluster.spec = debugged(cluster.spec, rule)
    tensors = cluster.other.ml / "output" / "tensors"
    segment = "steps/worker_1/1-0.arrows"
    with cluster.bringing():
        (tensors / segment).parent.mkdir(parents=True)
        (tensors / segment).write_bytes(b"row")
        eventually(lambda: (cluster.brought.tensors / segment).exists())
        cluster.spool.append(FrameKind.STATUS, {"status": "Training"}, at_us=1)
        eventually(lambda: cluster.seen() == [FrameKind.STATUS])

        (tensors / segment).write_bytes(b"row and row")
        (tensors / "worker_1.manifest.json").write_bytes(b"{}")
        cluster.spool.append(FrameKind.ENDED, {"outcome": "completed"}, at_us=2)

        def is_at_rest() -> bool:
            is_seen = FrameKind.ENDED in cluster.seen()
            assert not is_seen or (cluster.brought.tensors / "worker_1.manifest.json").exists()
            assert not is_seen or (cluster.brought.tensors / segment).read_bytes() == b"row and row"
            return is_seen

        eventually(is_at_rest)


def test_tensors_that_nobody_here_judges_do_not_come(cluster: Cluster) -> None:
    cluster.spec = debugged(cluster.spec, RuleSpec("nan", "NotANumber"))
    (cluster.other.ml / "output" / "tensors").mkdir(parents=True)
    cluster.spool.append(FrameKind.ENDED, {"outcome": "completed"}, at_us=1)

    with cluster.bringing():
        eventually(lambda: cluster.seen() == [FrameKind.ENDED])

    assert not any(path.startswith("tensors") for path in cluster.asked)
    assert not cluster.brought.tensors.exists()


def test_one_that_left_nothing_is_at_rest_too(cluster: Cluster) -> None:
    cluster.spool.append(FrameKind.ENDED, {"outcome": "failed"}, at_us=1)

    with cluster.bringing():
        eventually(lambda: cluster.seen() == [FrameKind.ENDED])

    assert list((cluster.brought.ml / "model").iterdir()) == []


def test_a_restarted_runner_continues_with_what_was_copied(cluster: Cluster) -> None:
    write_results(cluster.other)
    with cluster.bringing():
        cluster.spool.append(FrameKind.STATUS, {"status": "Training"}, at_us=1)
        eventually(lambda: cluster.seen() == [FrameKind.STATUS])
    (cluster.brought.root / "coming").mkdir()
    (cluster.brought.root / "coming" / "half").write_text("of what a crash left")
    cluster.spool.append(FrameKind.ENDED, {"outcome": "completed"}, at_us=2)

    with cluster.bringing():
        eventually(lambda: cluster.seen() == [FrameKind.STATUS, FrameKind.ENDED])

    assert [path.name for path in (cluster.brought.ml / "model").iterdir()] == ["left"]
    assert cluster.brought.spool.read_bytes() == cluster.other.spool.read_bytes()


def test_another_node_than_the_first_learns_only_how_active_the_others_are(tmp_path: Path) -> None:
    specs = attempt_specs(SampleEnvironment(tmp_path), count=4)
    addresses = ("10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.3")
    spread = [replace(spec, addresses=addresses) for spec in specs]
    own = InstanceRef.of(spread[1]).folder(tmp_path)
    own.root.mkdir(parents=True)
    asked: list[tuple[str, str]] = []

    def fetch(name: str, path: str, offset: int) -> bytes:
        assert offset == 0
        asked.append((name, path))
        return json.dumps(dict.fromkeys(spread[0].hosts, 3.0)).encode()

    is_over = threading.Event()
    brings = SiblingSync(tmp_path, spread[1], fetch, is_over=is_over.is_set)
    brings.start()
    eventually((own.root.parent / "algo-4" / "activity").exists)
    is_over.set()
    eventually(lambda: not brings.is_alive)

    assert set(asked) == {("algo-1", "activity")}
    assert sorted(path.parent.name for path in own.root.parent.glob("*/activity")) == ["algo-1", "algo-4"]
    assert [SiblingSync.is_needed(spec) for spec in spread] == [True, True, False, True]

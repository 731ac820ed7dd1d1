"""The content of a Pipe channel, from a real object store into a real pipe."""

import gzip
import io
import json
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.unit.instance.agent.samples import BUCKET, SPEC, changed, make_bucket, put_object
from trainyard.formats.recordio import read_recordio
from trainyard.foundation.locations import Location
from trainyard.instance.agent.data import pipe_feed
from trainyard.instance.agent.data.pipe_feed import FeedClosing, FifoWriter, PipeFeed
from trainyard.instance.agent.results.failure import CannotRun, FailureKind
from trainyard.link.contract import ChannelSpec, ObjectsSpec
from trainyard.objects.filesystem import FilesystemObjects

# Small ones, some that the kernel sends, and one that fills the pipe several times.
OBJECTS = {f"data/{number:02}": random.Random(number).randbytes(size) for number, size in enumerate(
    [0, 1, 5, 4096, 65_536, 65_537, 300_001, 3_000_000]
)}  # fmt: skip
KEYS = tuple(OBJECTS)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FilesystemObjects]:
    with closing(FilesystemObjects(tmp_path / "objects")) as opened:
        make_bucket(opened)
        for key, data in OBJECTS.items():
            put_object(opened, key, data)
        yield opened


@pytest.fixture
def root(tmp_path: Path, store: FilesystemObjects) -> str:
    return str(tmp_path / "objects")


def feed(root: str, **values: Any) -> PipeFeed:
    return PipeFeed(changed(objects=ObjectsSpec(root)), channel(**values))


def channel(**values: Any) -> ChannelSpec:
    told: dict[str, Any] = {"name": "train", "mode": "Pipe", "bucket": BUCKET.name, "prefix": "data/", "keys": KEYS}
    return ChannelSpec(**{**told, **values})


def received(sent: PipeFeed, epoch: int = 0) -> bytes:
    """Read a whole epoch while it is sent."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    wake = os.eventfd(0)

    def send() -> None:
        try:
            sent.send(epoch, FifoWriter(writer, wake))
        finally:
            os.close(writer)

    try:
        with ThreadPoolExecutor(1) as threads, os.fdopen(reader, "rb") as stream:
            sending = threads.submit(send)
            data = stream.read()
            sending.result()
            return data
    finally:
        os.close(wake)


def test_objects_come_one_after_another_in_every_epoch(root: str) -> None:
    sent = feed(root)
    assert received(sent, 0) == received(sent, 1) == b"".join(OBJECTS.values())


def test_each_object_is_one_record_when_they_are_wrapped(root: str) -> None:
    data = received(feed(root, record_wrapper="RecordIO"))
    assert list(read_recordio(io.BytesIO(data))) == list(OBJECTS.values())


def test_with_a_seed_every_epoch_has_another_order_that_can_be_repeated(root: str) -> None:
    sent = feed(root, record_wrapper="RecordIO", shuffle_seed=7)
    orders = [list(read_recordio(io.BytesIO(received(sent, epoch)))) for epoch in range(3)]
    assert all(sorted(order) == sorted(OBJECTS.values()) for order in orders)
    assert orders[0] != orders[1] != orders[2] != orders[0]
    again = feed(root, record_wrapper="RecordIO", shuffle_seed=7)
    assert list(read_recordio(io.BytesIO(received(again, 2)))) == orders[2]


@pytest.mark.parametrize("wrapper", ["None", "RecordIO"])
def test_packed_objects_are_unpacked(
    store: FilesystemObjects, root: str, wrapper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipe_feed, "_HELD_BYTES", 100_000)  # so that some are too large to hold in memory
    for key, data in OBJECTS.items():
        middle = len(data) // 2  # two gzip members, as tools that append write them
        put_object(store, key, gzip.compress(data[:middle]) + gzip.compress(data[middle:]))
    data = received(feed(root, record_wrapper=wrapper, compression="Gzip"))
    whole = list(OBJECTS.values())
    assert (list(read_recordio(io.BytesIO(data))) == whole) if wrapper == "RecordIO" else (data == b"".join(whole))


def test_objects_that_only_show_folders_are_left_out(store: FilesystemObjects, root: str) -> None:
    put_object(store, "data/folder/", b"")
    sent = feed(root, keys=("data/01", "data/folder/", "data/02"), record_wrapper="RecordIO")
    assert len(list(read_recordio(io.BytesIO(received(sent))))) == 2


def test_an_object_that_is_gone_is_named(store: FilesystemObjects, root: str) -> None:
    sent = feed(root)
    received(sent, 0)
    store.delete(Location(BUCKET, KEYS[3]))
    with pytest.raises(CannotRun, match=r"s3://yard/data/03 of channel train .* does not exist any more") as raised:
        received(sent, 1)
    assert raised.value.kind is FailureKind.BAD_INPUT


def test_for_a_deleted_bucket_the_first_object_is_named(store: FilesystemObjects, root: str) -> None:
    store.delete_many(BUCKET, KEYS)
    store.delete_bucket(BUCKET)
    with pytest.raises(CannotRun, match=r"s3://yard/data/00 of channel train .* does not exist\.$"):
        received(feed(root))


def test_the_same_object_put_again_between_epochs_is_no_change(store: FilesystemObjects, root: str) -> None:
    sent = feed(root)
    first = received(sent, 0)
    put_object(store, KEYS[3], OBJECTS[KEYS[3]])
    assert received(sent, 1) == first


def test_an_object_that_was_replaced_between_epochs_is_named(store: FilesystemObjects, root: str) -> None:
    sent = feed(root)
    received(sent, 0)
    put_object(store, KEYS[3], b"another")
    with pytest.raises(CannotRun, match=r"s3://yard/data/03 of channel train .* replaced"):
        received(sent, 1)


@pytest.mark.parametrize(
    "data",
    [b"plain text", gzip.compress(bytes(1000), mtime=0)[:-9], b"\x1f\x8b\x08" + bytes(40)],
    ids=["plain", "torn", "broken"],
)
def test_data_that_is_not_whole_gzip_is_named(store: FilesystemObjects, root: str, data: bytes) -> None:
    put_object(store, "data/01", data)
    with pytest.raises(CannotRun, match=r"s3://yard/data/01 .* not complete gzip data"):
        received(feed(root, keys=("data/01",), compression="Gzip"))


def manifest(store: FilesystemObjects, *lines: object) -> None:
    text = "".join(line if isinstance(line, str) else f"{json.dumps(line)}\n" for line in lines)
    put_object(store, "list.jsonl", text.encode())


def augmented(root: str, **values: Any) -> PipeFeed:
    told = {"keys": ("list.jsonl",), "attributes": ("source-ref", "label"), "record_wrapper": "RecordIO"}
    return feed(root, **{**told, **values})


def test_each_attribute_of_each_line_of_an_augmented_manifest_is_a_record(store: FilesystemObjects, root: str) -> None:
    lines = [{"label": {"cat": number}, "source-ref": f"s3://yard/{key}", "x": 1} for number, key in enumerate(KEYS)]
    manifest(store, *lines[:2], "\n", *lines[2:-1], json.dumps(lines[-1]))
    records = list(read_recordio(io.BytesIO(received(augmented(root)))))
    assert records[::2] == list(OBJECTS.values())
    assert [json.loads(record) for record in records[1::2]] == [{"cat": number} for number in range(len(KEYS))]


def test_the_lines_of_an_augmented_manifest_are_shuffled_and_shared_out(store: FilesystemObjects, root: str) -> None:
    manifest(store, *({"label": number, "source-ref": "s3://yard/data/01"} for number in range(30)))
    labels = []
    for part in range(3):
        told = channel(
            keys=("list.jsonl",),
            attributes=("label",),
            record_wrapper="RecordIO",
            shuffle_seed=1,
            distribution="ShardedByS3Key",
            part=part,
            parts=3,
        )
        spec = changed(SPEC, objects=ObjectsSpec(root))
        labels.append([int(each) for each in read_recordio(io.BytesIO(received(PipeFeed(spec, told))))])
    assert [len(each) for each in labels] == [10, 10, 10]
    together = [label for each in labels for label in each]
    assert sorted(together) == list(range(30)) != together


def shared_out(root: str, epoch: int, *, seed: int | None, parts: int = 3) -> list[list[bytes]]:
    """The share of each instance of 30 objects in an epoch."""
    keys = tuple(f"many/{number:02}" for number in range(30))
    values: dict[str, Any] = {"record_wrapper": "RecordIO", "shuffle_seed": seed, "distribution": "ShardedByS3Key"}
    sent = [feed(root, keys=keys, parts=parts, part=part, **values) for part in range(parts)]
    return [list(read_recordio(io.BytesIO(received(each, epoch)))) for each in sent]


def test_a_shuffled_and_sharded_channel_is_distributed_again_in_each_epoch(store: FilesystemObjects, root: str) -> None:
    bodies = [f"{number:02}".encode() for number in range(30)]
    for body in bodies:
        put_object(store, f"many/{body.decode()}", body)
    epochs = [shared_out(root, epoch, seed=7) for epoch in range(3)]
    for shares in epochs:
        assert [len(share) for share in shares] == [10, 10, 10]
        assert sorted(body for share in shares for body in share) == bodies
    owners = [{body: part for part, share in enumerate(shares) for body in share} for shares in epochs]
    assert owners[0] != owners[1] != owners[2] != owners[0]
    assert shared_out(root, 1, seed=7) == epochs[1]
    assert shared_out(root, 1, seed=8) != epochs[1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"label": 1}, "list.jsonl .* its line 2 has no attribute source-ref"),
        ("not json\n", "list.jsonl .* its line 2 is not a JSON object"),
        ("[1]\n", "list.jsonl .* its line 2 is not a JSON object"),
        ({"label": 1, "source-ref": "data/01"}, "source-ref of channel train does not name an object"),
        ({"label": 1, "source-ref": "s3://yard/data/99"}, "s3://yard/data/99 .* does not exist"),
    ],
)
def test_a_line_that_cannot_be_sent_is_named(store: FilesystemObjects, root: str, line: object, said: str) -> None:
    manifest(store, {"label": 1, "source-ref": "s3://yard/data/01"}, line)
    with pytest.raises(CannotRun, match=said):
        received(augmented(root))


def test_a_manifest_that_changed_between_epochs_is_named(store: FilesystemObjects, root: str) -> None:
    sent = augmented(root)
    manifest(store, {"label": 1, "source-ref": "s3://yard/data/01"})
    received(sent, 0)
    manifest(store, {"label": 2, "source-ref": "s3://yard/data/01"})
    with pytest.raises(CannotRun, match=r"list\.jsonl .* replaced"):
        received(sent, 1)


def test_a_reader_that_closes_early_is_a_broken_pipe(root: str) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.close(reader)
    wake = os.eventfd(0)
    with pytest.raises(BrokenPipeError):
        feed(root).send(0, FifoWriter(writer, wake))
    os.close(writer)
    os.close(wake)


def test_a_feeder_that_waits_for_its_reader_can_be_woken(root: str) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    wake = os.eventfd(0)
    with ThreadPoolExecutor(1) as threads:
        sending = threads.submit(feed(root).send, 0, FifoWriter(writer, wake))
        assert os.read(reader, 1)  # it has started, and the pipe is too small for everything
        os.eventfd_write(wake, 1)
        with pytest.raises(FeedClosing):
            sending.result()
    for descriptor in (reader, writer, wake):
        os.close(descriptor)

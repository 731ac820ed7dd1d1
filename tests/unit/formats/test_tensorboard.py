import io
import struct
from pathlib import Path

from trainyard.formats.tensorboard import EventFile, Histogram, Scalar
from trainyard.formats.tfrecord import read_tfrecord


def records(folder: Path) -> list[bytes]:
    (file,) = folder.iterdir()
    return list(read_tfrecord(io.BytesIO(file.read_bytes())))


def test_a_file_begins_with_its_version_and_has_each_step_as_soon_as_it_is_written(tmp_path: Path) -> None:
    file = EventFile(tmp_path / "TRAIN", writer="worker_0", at_us=1_700_000_000_000_000)
    file.write(300, [Scalar("loss", 0.5), Scalar("scalar/accuracy", 0.25)], at_us=1_700_000_001_000_000)
    first, second = records(tmp_path / "TRAIN")  # which is open still
    file.close()
    assert first.endswith(b"\x1a\x0dbrain.Event:2")
    assert second.startswith(b"\x09" + struct.pack("<d", 1_700_000_001.0) + b"\x10\xac\x02")
    for tag, value in ((b"loss", 0.5), (b"scalar/accuracy", 0.25)):
        assert tag + b"\x15" + struct.pack("<f", value) in second


def test_a_step_of_which_nothing_is_known_is_not_written(tmp_path: Path) -> None:
    file = EventFile(tmp_path, writer="worker_0", at_us=0)
    file.write(1, [], at_us=0)
    file.close()
    assert len(records(tmp_path)) == 1


def test_a_number_too_large_for_32_bits_is_infinite(tmp_path: Path) -> None:
    file = EventFile(tmp_path, writer="worker_0", at_us=0)
    file.write(1, [Scalar("loss", -1e300)], at_us=0)
    file.close()
    assert b"loss\x15" + struct.pack("<f", float("-inf")) in records(tmp_path)[1]


def test_a_histogram_has_its_sums_its_limits_and_its_counts(tmp_path: Path) -> None:
    file = EventFile(tmp_path, writer="worker_0", at_us=0)
    shown = Histogram("weights/fc", -1.0, 2.0, 3.0, 1.5, 4.5, [-1.0, 0.5, 2.0], [0.0, 1.0, 2.0])
    file.write(0, [shown], at_us=0)
    file.close()
    written = records(tmp_path)[1]
    assert b"\x32\x18" + struct.pack("<3d", -1.0, 0.5, 2.0) in written
    assert b"\x3a\x18" + struct.pack("<3d", 0.0, 1.0, 2.0) in written

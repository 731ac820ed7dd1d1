"""A Pipe channel, compared with raw sendfile: how fast a program can read what the agent feeds.

    python -m benchmarks.pipe_channel [--rounds N]

Both feed a FIFO from files in memory, in their own process, to a reader that discards the bytes. The raw feeder knows
its files and only calls sendfile; the agent's looks up each object in the store.
"""

import argparse
import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.measurement import write_results
from trainyard.foundation.clock import utc_now
from trainyard.foundation.locations import BucketRef, Location
from trainyard.instance.agent.data.pipes import PipeChannels
from trainyard.instance.agent.layout import ProgramUser, create_layout
from trainyard.link.contract import PROTOCOL, ChannelSpec, InstanceSpec, LimitSpec, ObjectsSpec, ProgramSpec
from trainyard.link.folders import InstanceFolder
from trainyard.objects.contract import Attributes
from trainyard.objects.filesystem import FilesystemObjects

# As a fraction of raw sendfile.
GOAL = 0.8
SIZES = {"4 x 256 MiB": (4, 256 << 20), "5,000 x 20 KiB": (5000, 20 << 10)}

_BUCKET = BucketRef("111122223333", "data")
_PIPE_BYTES = 1 << 20
_CHUNK = 1 << 20

Feeder = Callable[[], None]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a Pipe channel beside raw sendfile.")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    results = {name: _measure(count, size, rounds) for name, (count, size) in SIZES.items()}
    print(f"{'objects':16}{'sendfile GB/s':>16}{'channel GB/s':>16}{'share':>8}   goal {GOAL}")
    for name, told in results.items():
        print(f"{name:16}{told['sendfile']:16.2f}{told['channel']:16.2f}{told['channel'] / told['sendfile']:8.2f}")
    print(f"\nAll of it is in {write_results('pipe_channel', {'rounds': rounds, 'gb_per_s': results})}.")


def _measure(count: int, size: int, rounds: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        root = Path(folder)
        keys = _store(root / "objects", count, size)
        times: dict[str, list[float]] = {"sendfile": [], "channel": []}
        # The first round fills the caches.
        for number in range(rounds + 1):
            for name, rate in (("sendfile", _raw), ("channel", _channel)):
                seconds = rate(root / f"{name}-{number}", root / "objects", keys)
                times[name] += [seconds] if number else []
        return {name: count * size / median(taken) / 1e9 for name, taken in times.items()}


def _store(root: Path, count: int, size: int) -> list[str]:
    keys = [f"train/{number:05}" for number in range(count)]
    with closing(FilesystemObjects(root)) as store:
        store.create_bucket(_BUCKET, region="us-east-1", now=utc_now())
        data = os.urandom(size)
        for key in keys:
            writer = store.writer(Location(_BUCKET, key), Attributes())
            writer.write(data)
            writer.commit(now=utc_now())
    return keys


def _raw(folder: Path, objects: Path, keys: Sequence[str]) -> float:
    folder.mkdir()
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    with closing(FilesystemObjects(objects)) as store:
        # In the order of the channel. The order of the folders differs, and would be faster.
        files = [file.path for file in store.stored_files(_BUCKET, keys) if file is not None]

    def feed() -> None:
        target = os.open(fifo, os.O_WRONLY)
        fcntl.fcntl(target, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        for path in files:
            source = os.open(path, os.O_RDONLY)
            offset = 0
            while sent := os.sendfile(target, source, offset, 1 << 30):
                offset += sent
            os.close(source)

    return _time_reading(fifo, feed)


def _channel(folder: Path, objects: Path, keys: Sequence[str]) -> float:
    instance = InstanceFolder(folder)
    instance.root.mkdir()
    # As the yard specifies it.
    with closing(FilesystemObjects(objects)) as store:
        etags = [file.etag for file in store.stored_files(_BUCKET, keys) if file is not None]
    channel = ChannelSpec("train", "Pipe", _BUCKET.name, "train/", keys, etags, sizes=[0] * len(keys))
    spec = replace(SPEC, channels=(channel,), objects=ObjectsSpec(str(objects)))
    create_layout(instance, spec, ProgramUser(None))
    pipes = PipeChannels(instance, spec, ProgramUser(None))
    pipes.create_fifos()

    def feed() -> None:
        pipes.start()
        # The feeder removes it after the last byte.
        while (instance.ml / "input/data/train_0").exists():
            time.sleep(0.01)
        assert pipes.failure is None, pipes.failure

    return _time_reading(instance.ml / "input/data/train_0", feed)


def _time_reading(fifo: Path, feed: Feeder) -> float:
    """Return the seconds until everything that another process feeds is read."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        feed()
        os._exit(0)
    buffer = bytearray(_CHUNK)
    with fifo.open("rb", buffering=0) as stream:
        started = time.perf_counter()
        while stream.readinto(buffer):
            pass
        taken = time.perf_counter() - started
    os.waitpid(child, 0)
    return taken


SPEC = InstanceSpec(
    protocol=PROTOCOL,
    job_id="bench",
    job_name="bench",
    job_arn="arn:aws:sagemaker:us-east-1:111122223333:training-job/bench",
    account=_BUCKET.account,
    region="us-east-1",
    attempt=1,
    instance="algo-1",
    hosts=("algo-1",),
    instance_type="ml.m5.large",
    instance_group="homogeneousCluster",
    program=ProgramSpec(),
    hyperparameters={},
    environment={},
    channels=(),
    output_path="",
    metrics=(),
    limits=LimitSpec(),
    objects=ObjectsSpec(""),
)

if __name__ == "__main__":
    main()

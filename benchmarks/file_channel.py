"""A File channel, compared with a loop of hard links and with the alternatives of a program: boto3 and s3fs.

    python -m benchmarks.file_channel [--rounds N] [--without-peers]

The loop knows its files and only links them. The channel is what an agent does before its program starts: it opens the
store, looks up each object, and links the files into the folder that the program sees. boto3 and s3fs download the same
objects from the same yard. All take turns, and every byte is compared once.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measurement import Spread, spread, write_results
from tests.conformance.environments import interpreter
from trainyard.foundation.clock import utc_now
from trainyard.foundation.locations import BucketRef, Location
from trainyard.instance.agent.data.channels import stage_channels
from trainyard.instance.agent.data.object_store import open_store
from trainyard.link.contract import ChannelSpec, ObjectsSpec
from trainyard.objects.contract import Attributes
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.testing.yard import RunningYard, running_yard

# The limit for many small objects, as a multiple of the time of the loop.
GOAL = 2.0
SIZES = {"5,000 x 20 KiB": (5000, 20 << 10), "4 x 256 MiB": (4, 256 << 20)}
CLIENT = Path(__file__).with_name("file_client.py")
PEERS = {"boto3": "moto", "s3fs": "s3fs"}  # names of their environments too

_CHUNK = 1 << 20

Bring = Callable[[Path], float]


@dataclass(frozen=True, slots=True)
class Data:
    """Objects under `train/` of a bucket, and the digest of each."""

    yard: RunningYard
    bucket: BucketRef
    digests: Mapping[str, str]

    @property
    def keys(self) -> Sequence[str]:
        return list(self.digests)

    def link(self, folder: Path) -> float:
        with closing(FilesystemObjects(self.yard.home.objects)) as store:
            files = store.stored_files(self.bucket, self.keys)
        found = [(key, file) for key, file in zip(self.keys, files, strict=True) if file is not None]
        pairs = [(file.path, f"{folder}/{key.removeprefix('train/')}") for key, file in found]
        started = time.perf_counter()
        for file, place in pairs:
            os.link(file, place)
        return time.perf_counter() - started

    def channel(self, folder: Path) -> float:
        channel = ChannelSpec(folder.name, "File", self.bucket.name, "train/", self.keys)
        started = time.perf_counter()
        with closing(open_store(ObjectsSpec(str(self.yard.home.objects)))) as store:
            stage_channels(store, [channel], account=self.bucket.account, root=folder.parent, check=lambda: None)
        return time.perf_counter() - started

    def download(self, peer: str) -> Bring:
        def measure(folder: Path) -> float:
            run = subprocess.run(
                [interpreter(PEERS[peer]), CLIENT, peer, f"{self.bucket.name}/train/", folder],
                env=self.yard.environment(),
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            return float(run.stdout)

        return measure

    def compare(self, folder: Path) -> None:
        found = {f"train/{path.name}": _digest(path) for path in folder.iterdir()}
        assert found == self.digests, "the files are not the objects"


def main() -> None:
    arguments = _arguments()
    peers = () if arguments.without_peers else tuple(PEERS)
    seconds = {}
    for name, (count, size) in SIZES.items():
        with (
            tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder,
            running_yard(Path(folder, "home")) as yard,
        ):
            data = _store(yard, count, size)
            seconds[name] = _measure(data, Path(folder), peers=peers, rounds=arguments.rounds, title=name)
    _print(seconds)
    path = write_results("file_channel", {"rounds": arguments.rounds, "goal": GOAL, "seconds": seconds})
    print(f"\nEvery round is in {path}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure a File channel beside hard links, boto3 and s3fs.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-peers", action="store_true", help="beside the hard links only")
    return parser.parse_args()


def _store(yard: RunningYard, count: int, size: int) -> Data:
    bucket = BucketRef(yard.credentials.account, "data")
    digests = {}
    with closing(FilesystemObjects(yard.home.objects)) as store:
        store.create_bucket(bucket, region=yard.credentials.region, now=utc_now())
        for number in range(count):
            key, body = f"train/{number:05}", os.urandom(size)
            writer = store.writer(Location(bucket, key), Attributes())
            writer.write(body)
            writer.commit(now=utc_now())
            digests[key] = hashlib.sha256(body).hexdigest()
    return Data(yard, bucket, digests)


def _measure(data: Data, root: Path, *, peers: Sequence[str], rounds: int, title: str) -> dict[str, list[float]]:
    ways: dict[str, Bring] = {"hard links": data.link, "channel": data.channel}
    ways |= {peer: data.download(peer) for peer in peers}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    # The first round fills the caches and compares the bytes.
    for number in range(rounds + 1):
        print(f"{title}, round {number} of {rounds}", flush=True)
        for name, bring in ways.items():
            folder = root / name.replace(" ", "-")
            folder.mkdir()
            taken = bring(folder)
            if number:
                seconds[name].append(taken)
            else:
                data.compare(folder)
            shutil.rmtree(folder)
    return seconds


def _print(seconds: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    for name, by_way in seconds.items():
        spreads: dict[str, Spread] = {way: spread([1000 * each for each in taken]) for way, taken in by_way.items()}
        base = spreads["hard links"].median
        print(f"\n{name:16}{'ms':>36}{'times the links':>18}")
        for way, measured in spreads.items():
            # A few links take less time than opening the store, so the ratio is meaningful only for many.
            is_judged = way == "channel" and SIZES[name][0] >= 1000
            verdict = f"   goal {GOAL:g}" + ("" if measured.median <= GOAL * base else ", missed") if is_judged else ""
            range_ms = f"{measured.median:,.2f} ({measured.lowest:,.2f} to {measured.highest:,.2f})"
            print(f"{way:12}{range_ms:>40}{measured.median / base:>18,.1f}{verdict}")


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


if __name__ == "__main__":
    main()

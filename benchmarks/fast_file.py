"""FastFile channels: local ones compared with the file system, remote ones with s3fs and with downloading first.

    python -m benchmarks.fast_file [--rounds N] [--large-mib N] [--small-count N] [--delay-ms N] [--without-peers]

Small files are read in order, a large one sequentially and at random. Each way is timed from its start to its first
batch of 32 reads and to its last, and the bytes are compared. The time of a remote channel includes mounting it; that
of a local one starts when its files are linked, which `file_channel.py` measures. The remote S3 is a second yard behind
a relay that delays every request, because requests on the loopback alone cost nothing. Each round starts with empty
caches on this machine.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.measurement import spread, write_results
from benchmarks.pipe_channel import SPEC
from benchmarks.slow_way import slow_way
from tests.conformance.environments import interpreter
from trainyard.foundation.clock import utc_now
from trainyard.foundation.locations import BucketRef, Location
from trainyard.instance.agent.data.channels import stage_channels
from trainyard.instance.agent.data.object_store import open_store
from trainyard.instance.agent.data.remote_files.mounts import RemoteMounts
from trainyard.instance.agent.reports import Reports
from trainyard.link.contract import ChannelSpec, InstanceSpec, ObjectsSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.specs import write_spec
from trainyard.link.spool import SpoolWriter
from trainyard.objects.contract import Attributes, ObjectAccess, ObjectStore
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.objects.remote import RemoteObjects
from trainyard.testing.yard import RunningYard, running_yard

CLIENT = Path(__file__).with_name("fast_file_client.py")
PEERS = {"s3fs": "s3fs", "boto3": "moto"}  # names of their environments too
PATTERNS = ("small", "sequential", "random")
BUCKET = "data"

_SMALL_BYTES = 20 << 10

# Keyed by pattern, way, and first or total.
Seconds = dict[str, dict[str, dict[str, list[float]]]]


@dataclass(frozen=True, slots=True)
class Reading:
    """The seconds until the first and the last batch, and what was read."""

    first_s: float
    total_s: float
    digest: str


@dataclass(frozen=True, slots=True)
class Bench:
    """The yard that acts as S3, the relay to it, and its objects: the same for the peers and, in our layout, for us."""

    yard: RunningYard
    endpoint: str
    sizes: Mapping[str, int]
    root: Path

    @property
    def local(self) -> ObjectsSpec:
        return ObjectsSpec(str(self.yard.home.objects))

    @property
    def remote(self) -> ObjectsSpec:
        keys = self.yard.credentials
        return ObjectsSpec(
            str(self.root / "staging"),
            url="s3://store/yard",
            endpoint=self.endpoint,
            region=keys.region,
            access_key_id=keys.access_key_id,
            secret_access_key=keys.secret_access_key,
        )

    def fill(self) -> None:
        with closing(FilesystemObjects(Path(self.local.folder))) as near:
            near.create_bucket(BucketRef(self.yard.credentials.account, "store"), region="us-east-1", now=utc_now())
            with closing(self._far()) as far:
                for store in (near, far):
                    store.create_bucket(self._bucket, region="us-east-1", now=utc_now())
                for key, size in self.sizes.items():
                    body = os.urandom(size)
                    for store in (near, far):
                        _put(store, Location(self._bucket, key), body)

    def _far(self) -> RemoteObjects:
        there = self.remote
        return RemoteObjects(
            there.url,
            staging=Path(there.folder),
            endpoint=there.endpoint,
            region=there.region,
            access_key_id=there.access_key_id,
            secret_access_key=there.secret_access_key,
        )

    def spec(self, objects: ObjectsSpec) -> InstanceSpec:
        with closing(open_store(objects)) as store:
            found = store.list_objects(self._bucket, prefix="train/", limit=100_000).objects
        keys, etags = [each.key for each in found], [each.etag for each in found]
        channel = ChannelSpec("train", "FastFile", BUCKET, "train/", keys, etags, [each.size for each in found])
        return replace(SPEC, account=self._bucket.account, channels=(channel,), objects=objects)

    @property
    def _bucket(self) -> BucketRef:
        return BucketRef(self.yard.credentials.account, BUCKET)

    def peer(self, name: str, pattern: str) -> Reading:
        environment = self.yard.environment() | {"AWS_ENDPOINT_URL": self.endpoint}
        return _client(str(interpreter(PEERS[name])), name, f"{BUCKET}/train/", pattern, environment)

    def files(self, pattern: str) -> Reading:
        return _client(sys.executable, "files", str(self.root / "plain"), pattern)

    def near_channel(self, pattern: str) -> Reading:
        """Prepare a channel as the agent does for local objects; the sandbox shows that folder unchanged."""
        folder = _instance(self.root)
        spec = self.spec(self.local)
        with closing(open_store(spec.objects)) as store:
            stage_channels(store, spec.channels, account=spec.account, root=folder.channels, check=lambda: None)
        return _client(sys.executable, "files", str(folder.channels / "train"), pattern)

    def far_channel(self, pattern: str) -> Reading:
        folder = _instance(self.root)
        spec = self.spec(self.remote)
        write_spec(folder.root, spec)
        with SpoolWriter(folder.spool) as spool, closing(RemoteMounts(folder, spec, reports=Reports(spool))) as mounts:
            started = time.perf_counter()
            assert mounts.mount(spec.channels, check=lambda: None), "this machine lets nobody mount"
            taken = time.perf_counter() - started
            told = _client(sys.executable, "files", str(folder.channels / "train"), pattern)
            return replace(told, first_s=told.first_s + taken, total_s=told.total_s + taken)


def main() -> None:
    arguments = _arguments()
    with _bench(arguments) as bench:
        seconds = _measure(bench, arguments.rounds, peers=() if arguments.without_peers else tuple(PEERS))
    _print(seconds, arguments)
    print(f"\nEvery round is in {write_results('fast_file', {**vars(arguments), 'seconds': seconds})}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure FastFile channels beside files, s3fs and boto3.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large-mib", type=int, default=256, help="MiB of the large object")
    parser.add_argument("--small-count", type=int, default=1000, help="objects of 20 KiB")
    parser.add_argument("--delay-ms", type=float, default=5.0, help="added to every request to the remote S3")
    parser.add_argument("--without-peers", action="store_true", help="without boto3 and s3fs")
    return parser.parse_args()


@contextmanager
def _bench(arguments: argparse.Namespace) -> Iterator[Bench]:
    sizes = {f"train/small/{number:05}": _SMALL_BYTES for number in range(arguments.small_count)}
    sizes["train/large"] = arguments.large_mib << 20
    with (
        tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder,
        running_yard(Path(folder, "home")) as yard,
        slow_way(yard.http, arguments.delay_ms / 1000) as endpoint,
    ):
        bench = Bench(yard, endpoint, sizes, Path(folder))
        replace(bench, endpoint=yard.http).fill()
        with closing(open_store(bench.local)) as store:
            _lay_out(store, bench)
        yield bench


def _lay_out(store: ObjectAccess, bench: Bench) -> None:
    """Write the same objects as plain files."""
    for key in bench.sizes:
        place = bench.root / "plain" / key.removeprefix("train/")
        place.parent.mkdir(parents=True, exist_ok=True)
        with store.open(Location(BucketRef(bench.yard.credentials.account, BUCKET), key)) as reader:
            place.write_bytes(reader.read(0, reader.info.size))


def _measure(bench: Bench, rounds: int, *, peers: Sequence[str]) -> Seconds:
    ways: dict[str, Callable[[str], Reading]] = {
        "file system": bench.files,
        "FastFile, local": bench.near_channel,
        "FastFile, remote": bench.far_channel,
    }
    ways |= {f"{peer}, remote": partial(bench.peer, peer) for peer in peers}
    seconds: Seconds = {pattern: {way: {"first": [], "total": []} for way in ways} for pattern in PATTERNS}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", flush=True)
        for pattern in PATTERNS:
            digests = set()
            for way, read in ways.items():
                told = read(pattern)
                digests.add(told.digest)
                seconds[pattern][way]["first"].append(told.first_s)
                seconds[pattern][way]["total"].append(told.total_s)
            assert len(digests) == 1, f"not all have read the same: {pattern}"
    return seconds


def _client(python: str, way: str, place: str, pattern: str, environment: Mapping[str, str] | None = None) -> Reading:
    run = subprocess.run(
        [python, CLIENT, way, place, pattern], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    told = json.loads(run.stdout)
    return Reading(told["first"], told["total"], told["digest"])


def _instance(root: Path) -> InstanceFolder:
    folder = InstanceFolder(Path(tempfile.mkdtemp(prefix="instance-", dir=root)))
    folder.scratch.mkdir()
    return folder


def _put(store: ObjectStore, where: Location, body: bytes) -> None:
    writer = store.writer(where, Attributes())
    writer.write(body)
    writer.commit(now=utc_now())


def _print(seconds: Seconds, arguments: argparse.Namespace) -> None:
    sizes = {
        "small": f"{arguments.small_count} x 20 KiB",
        "sequential": f"{arguments.large_mib} MiB",
        "random": "256 x 64 KiB",
    }
    for pattern, ways in seconds.items():
        print(f"\n{pattern}: {sizes[pattern]}\n{'':20}{'first batch, s':>26}{'all, s':>26}")
        for way, told in ways.items():
            print(f"{way:20}{spread(told['first'])!s:>26}{spread(told['total'])!s:>26}")


if __name__ == "__main__":
    main()

"""The S3 front compared with moto server, and with itself when it encrypts: the cost of each per byte and per object.

    python -m benchmarks.s3_front [--rounds N] [--large-mib N] [--small-count N]

The two servers take turns, so that a busy machine slows both.
"""

import argparse
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.measurement import Spread, cpu_seconds, spread, write_results
from tests.conformance.environments import interpreter
from trainyard.testing.yard import running_yard

MEBIBYTE = 1024 * 1024
SMALL_SIZE = 20 * 1024
CLIENT = Path(__file__).with_name("s3_client.py")

SERVERS = ("yard", "encrypted", "moto")
# The limit for the yard, as a fraction of moto.
GOALS = {"put large": 1.0, "get large": 1 / 10, "put small": 1.0, "get small": 1 / 4}


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    pid: int
    environment: Mapping[str, str]
    bucket: str = "benchmark"


@dataclass(frozen=True, slots=True)
class Load:
    """A load. CPU time is reported per `unit`; one run has `units` of them."""

    name: str
    operation: str
    count: int
    size: int
    unit: str
    units: float

    @property
    def megabytes(self) -> float:
        return self.count * self.size / 1e6


@dataclass(frozen=True, slots=True)
class Sample:
    cpu_per_unit: float
    megabytes_per_second: float


def main() -> None:
    arguments = _arguments()
    loads = _loads(arguments.large_mib, arguments.small_count)
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder, _yard(Path(folder)) as yard, _moto() as moto:
        # The same yard with a bucket whose objects are encrypted with a KMS key.
        encrypted = replace(yard, name="encrypted", bucket="encrypted")
        samples = _measure([yard, encrypted, moto], loads, arguments.rounds)
    rows = {load.name: {name: samples[name, load.name] for name in SERVERS} for load in loads}
    _print(rows, loads)
    path = write_results("s3_front", {"rounds": arguments.rounds, "loads": _document(rows)})
    print(f"\nEvery round is in {path}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare the yard's S3 front with moto server.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--large-mib", type=int, default=256, help="MiB of the large object")
    parser.add_argument("--small-count", type=int, default=500, help="objects of 20 KiB per round")
    return parser.parse_args()


def _loads(large_mib: int, small_count: int) -> list[Load]:
    large = {"count": 1, "size": large_mib * MEBIBYTE, "unit": "s/GiB", "units": large_mib / 1024}
    small = {"count": small_count, "size": SMALL_SIZE, "unit": "ms/object", "units": small_count / 1000}
    return [
        Load(f"{operation} {size}", operation, **values)  # type: ignore[arg-type]
        for size, values in (("large", large), ("small", small))
        for operation in ("put", "get")
    ]


def _measure(servers: list[Server], loads: list[Load], rounds: int) -> dict[tuple[str, str], list[Sample]]:
    samples: dict[tuple[str, str], list[Sample]] = {(s.name, load.name): [] for s in servers for load in loads}
    for server in servers:
        _run_client(server, "prepare", 0, 0)
        if server.name == "encrypted":
            _run_client(server, "encrypt", 0, 0)
        # Load everything that is lazy.
        _run_client(server, "put", 10, SMALL_SIZE)
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", flush=True)
        for server in servers:
            for load in loads:
                samples[server.name, load.name].append(_sample(server, load))
            _run_client(server, "clear", 0, 0)
    return samples


def _sample(server: Server, load: Load) -> Sample:
    before = cpu_seconds(server.pid)
    seconds = _run_client(server, load.operation, load.count, load.size)
    return Sample((cpu_seconds(server.pid) - before) / load.units, load.megabytes / seconds)


def _run_client(server: Server, operation: str, count: int, size: int) -> float:
    run = subprocess.run(
        [interpreter("moto"), CLIENT, operation, server.bucket, str(count), str(size)],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **server.environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(run.stdout)


def _print(rows: Mapping[str, Mapping[str, list[Sample]]], loads: list[Load]) -> None:
    print(
        f"\n{'':12}{'server CPU':>14}{'yard':>26}{'encrypted':>26}{'moto':>26}{'ratio':>8}{'goal':>7}   "
        f"{'MB/s yard':>9}{'encrypted':>11}{'moto':>7}"
    )
    for load in loads:
        yard, encrypted, moto = (_cpu(rows[load.name][name]) for name in SERVERS)
        ratio, goal = yard.median / moto.median, GOALS[load.name]
        speeds = [spread([s.megabytes_per_second for s in rows[load.name][name]]).median for name in SERVERS]
        verdict = "" if ratio <= goal else "   missed"
        print(
            f"{load.name:12}{load.unit:>14}{yard!s:>26}{encrypted!s:>26}{moto!s:>26}{ratio:>8.3f}{goal:>7.2f}", end=""
        )
        print(f"   {speeds[0]:>9.0f}{speeds[1]:>11.0f}{speeds[2]:>7.0f}{verdict}")


def _cpu(samples: list[Sample]) -> Spread:
    return spread([sample.cpu_per_unit for sample in samples])


def _document(rows: Mapping[str, Mapping[str, list[Sample]]]) -> dict[str, object]:
    return {
        name: {
            "goal": GOALS[name],
            "ratio": _cpu(by_server["yard"]).median / _cpu(by_server["moto"]).median,
            **{server: [asdict(sample) for sample in samples] for server, samples in by_server.items()},
        }
        for name, by_server in rows.items()
    }


@contextmanager
def _yard(folder: Path) -> Iterator[Server]:
    with running_yard(folder / "home") as yard:
        yield Server("yard", yard.process.pid, yard.environment())


@contextmanager
def _moto() -> Iterator[Server]:
    port = _free_port()
    program = str(interpreter("moto").with_name("moto_server"))
    with subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            _await_answer(f"http://127.0.0.1:{port}/moto-api/")
            yield Server("moto", process.pid, _moto_environment(port))
        finally:
            process.terminate()


def _moto_environment(port: int) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "benchmark",
        "AWS_SECRET_ACCESS_KEY": "benchmark",
        "AWS_DEFAULT_REGION": "us-east-1",
    }


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _await_answer(url: str) -> None:
    for _ in range(300):
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(f"{url} does not answer.")


if __name__ == "__main__":
    main()

"""One page of ListTrainingJobs, with filters and sort orders, among growing numbers of jobs.

    python -m benchmarks.list_jobs [--counts N…] [--moto-counts N…] [--calls N]

The jobs are written into the records of a stopped yard, each as a copy of one that ran. A call is timed from its first
byte to the last byte of the answer, on a persistent connection, with the signature computed before. moto server gets
the same calls, among jobs that are put into its memory.
"""

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from benchmarks.many_jobs import fill_yard
from benchmarks.measurement import write_results
from benchmarks.yard_jobs import SCRIPTS, open_jobs
from tests.conformance.environments import interpreter
from trainyard.foundation.home import Home
from trainyard.testing.yard import running_yard

GOAL_MS = 10.0
# The growth from the first count to the last, which is ten times the first.
GOAL_GROWTH = 2.0
PAGE = 100
MOTO = Path(__file__).with_name("moto_jobs.py")
HEADERS = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "SageMaker.ListTrainingJobs"}

# moto filters after it takes a page, does not sort, and does not understand times on the wire.
ASKED: Mapping[str, Mapping[str, Any]] = {
    "newest first": {},
    "completed, by name": {"StatusEquals": "Completed", "SortBy": "Name", "SortOrder": "Ascending"},
    "failed, newest first": {"StatusEquals": "Failed", "SortBy": "CreationTime", "SortOrder": "Descending"},
    "name contains, newest first": {"NameContains": "bert"},
    "rare name, completed": {"NameContains": "bert-00000", "StatusEquals": "Completed"},
    "no such name, by name": {"NameContains": "nothing", "SortBy": "Name"},
}


@dataclass(frozen=True, slots=True)
class Asker:
    """Sends signed calls to one endpoint, on one connection."""

    connection: http.client.HTTPConnection
    headers: Callable[[bytes], Mapping[str, str]]

    def milliseconds(self, body: bytes) -> float:
        headers = self.headers(body)
        begun = time.perf_counter()
        self.connection.request("POST", "/", body, dict(headers))
        answer = self.connection.getresponse()
        data = answer.read()
        took = (time.perf_counter() - begun) * 1000
        assert answer.status == 200, data
        return took


def main() -> None:
    arguments = _arguments()
    milliseconds: dict[str, dict[str, dict[str, list[float]]]] = {"yard": {}, "moto": {}}
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        home = Home(Path(folder) / "home")
        _seed(home)
        for count in arguments.counts:
            fill_yard(home, count, seed="first-line")
            with _yard(home) as asker:
                milliseconds["yard"][str(count)] = _measure(asker, arguments.calls, f"yard, {count:,} jobs")
    for count in arguments.moto_counts:
        with _moto(count) as asker:
            milliseconds["moto"][str(count)] = _measure(asker, arguments.calls, f"moto, {count:,} jobs")
    _print(milliseconds)
    path = write_results("list_jobs", {"calls": arguments.calls, "asked": ASKED, "milliseconds": milliseconds})
    print(f"\nAll of it is in {path}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure pages of ListTrainingJobs beside moto server.")
    parser.add_argument("--counts", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--moto-counts", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--calls", type=int, default=100, help="of each kind")
    return parser.parse_args()


def _seed(home: Home) -> None:
    """Run the job that all others are copies of."""
    script = SCRIPTS / "first_line.py"
    with open_jobs(home.root, python=Path(sys.executable)) as jobs:
        jobs.finish(jobs.create(script, jobs.upload(script)))


@contextmanager
def _yard(home: Home) -> Iterator[Asker]:
    with running_yard(home.root) as yard:
        keys = yard.credentials
        signer = SigV4Auth(Credentials(keys.access_key_id, keys.secret_access_key), "sagemaker", keys.region)

        def headers(body: bytes) -> Mapping[str, str]:
            request = AWSRequest("POST", f"{yard.http}/", headers=HEADERS, data=body)
            signer.add_auth(request)
            return dict(request.headers)

        with closing(http.client.HTTPConnection(urlsplit(yard.http).netloc)) as connection:
            yield Asker(connection, headers)


@contextmanager
def _moto(count: int) -> Iterator[Asker]:
    """Start moto, which does not verify signatures but reads the region and the service from them."""
    command = [str(interpreter("moto")), str(MOTO), str(count)]
    scope = "Credential=benchmark/20260101/us-east-1/sagemaker/aws4_request"
    headers = HEADERS | {"Authorization": f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=none"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            yield Asker(connection, lambda _: headers)
        process.stdin.close()


def _measure(asker: Asker, calls: int, title: str) -> dict[str, list[float]]:
    print(title, flush=True)
    found: dict[str, list[float]] = {}
    for name, asked in ASKED.items():
        body = json.dumps({"MaxResults": PAGE, **asked}).encode()
        # Load everything that is lazy.
        asker.milliseconds(body)
        found[name] = [asker.milliseconds(body) for _ in range(calls)]
    return found


def _print(milliseconds: Mapping[str, Mapping[str, Mapping[str, list[float]]]]) -> None:
    columns = [(server, count) for server, by_count in milliseconds.items() for count in by_count]
    print(f"\n{'ms, median of a page of 100':32}" + "".join(f"{f'{s} {int(c):,}':>15}" for s, c in columns), end="")
    print(f"{'growth':>9}   goals {GOAL_MS:g} ms, growth {GOAL_GROWTH:g}")
    for name in ASKED:
        medians = {at: statistics.median(milliseconds[at[0]][at[1]][name]) for at in columns}
        yard = [median for (server, _), median in medians.items() if server == "yard"]
        growth = yard[-1] / yard[0]
        verdict = "" if max(yard) <= GOAL_MS and growth <= GOAL_GROWTH else "   missed"
        print(f"{name:32}" + "".join(f"{median:>15.2f}" for median in medians.values()), end="")
        print(f"{growth:>9.2f}{verdict}")


if __name__ == "__main__":
    main()

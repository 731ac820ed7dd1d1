"""How soon a yard answers after its start, and how much memory it uses while idle.

    python -m benchmarks.start [--rounds N]

A round starts `trainyard up` on a fresh home folder, stops it, and starts it again on the same folder. The first answer
is that to a signed ListBuckets, sent as soon as the port is open. Memory is read afterwards, over all processes of the
yard, and so includes what the first call loads.
"""

import argparse
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from benchmarks.measurement import Memory, Spread, spread, tree_memory, write_results
from trainyard.foundation.home import Home, Runtime

GOAL_SECONDS = 1.0
GOAL_MEGABYTES = 120.0
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Start:
    seconds_to_listen: float
    seconds_to_answer: float
    at_rest: Memory


def main() -> None:
    rounds = _rounds()
    starts: dict[str, list[Start]] = {"fresh home": [], "known home": []}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", flush=True)
        with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
            for kind in starts:
                starts[kind].append(_start(Home(Path(folder) / "home")))
    _print(starts)
    path = write_results("start", {kind: [asdict(each) for each in many] for kind, many in starts.items()})
    print(f"\nEvery round is in {path}.")


def _rounds() -> int:
    parser = argparse.ArgumentParser(description="Measure the start and the idle memory of a yard.")
    parser.add_argument("--rounds", type=int, default=11)
    return int(parser.parse_args().rounds)


def _start(home: Home) -> Start:
    program, folder = str(Path(sys.executable).with_name("trainyard")), str(home.root)
    begun = time.perf_counter()
    with subprocess.Popen([program, "up", "--detach", "--home", folder, "--port", "0"], stderr=subprocess.DEVNULL):
        runtime = _await_runtime(home)
        listening = time.perf_counter() - begun
        _list_buckets(home, runtime.http)
        answered = time.perf_counter() - begun
    try:
        return Start(listening, answered, tree_memory(runtime.pid))
    finally:
        subprocess.run([program, "down", "--home", folder], stderr=subprocess.DEVNULL, check=True)


def _await_runtime(home: Home) -> Runtime:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        runtime = home.runtime()
        if runtime is not None:
            return runtime
        time.sleep(0.002)
    raise TimeoutError(f"The yard did not start within {PATIENCE_S} s.")


def _list_buckets(home: Home, endpoint: str) -> None:
    """Send one signed request, without the second that a boto3 client would add."""
    known = home.credentials()
    request = AWSRequest("GET", f"{endpoint}/")
    S3SigV4Auth(Credentials(known.access_key_id, known.secret_access_key), "s3", known.region).add_auth(request)
    with urllib.request.urlopen(urllib.request.Request(request.url, headers=dict(request.headers))) as answer:
        assert b"ListAllMyBucketsResult" in answer.read()


def _print(starts: Mapping[str, list[Start]]) -> None:
    print(f"\n{'':12}{'s to listen':>24}{'s to first answer':>24}{'MB, proportional':>24}{'MB, resident':>24}")
    for kind, many in starts.items():
        answer = spread([each.seconds_to_answer for each in many])
        held = spread([each.at_rest.proportional for each in many])
        print(f"{kind:12}{spread([each.seconds_to_listen for each in many])!s:>24}{answer!s:>24}{held!s:>24}", end="")
        print(f"{spread([each.at_rest.resident for each in many])!s:>24}{_verdict(answer, held)}")
    print(f"goals: first answer {GOAL_SECONDS} s, {GOAL_MEGABYTES:.0f} MB; medians, with lowest and highest")


def _verdict(answer: Spread, held: Spread) -> str:
    return "" if answer.median <= GOAL_SECONDS and held.median <= GOAL_MEGABYTES else "   missed"


if __name__ == "__main__":
    main()

"""Bodies of every shape and size for every operation, signed and unsigned, slow and truncated, beside another client.

Nothing may break, nobody else may be refused, and memory stays bounded. The latency of others is reported but not
checked, because it depends on the load of the machine; the goal is a p99 below 50 ms.
"""

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.system.fuzz.exchange import PATIENCE_S, Draft
from tests.system.fuzz.hostile import (
    MEBIBYTE,
    GoodCaller,
    Stalled,
    connection_of,
    cut_off,
    hostile_request,
    is_fault,
    peak_bytes,
)
from tests.system.fuzz.values import targets
from tests.system.fuzz.world import User
from trainyard.testing.yard import RunningYard, running_yard

SEED = 20
ROUNDS = 3  # over all operations
ATTACKERS = 3  # of each kind
MOST_S = 600.0
MOST_GROWTH_BYTES = 512 * MEBIBYTE

pytestmark = pytest.mark.slow


@pytest.fixture
def besieged(tmp_path: Path) -> Iterator[RunningYard]:
    with running_yard(tmp_path / "yard") as yard:
        yield yard


def test_hostile_clients_break_nothing_and_block_nobody(
    besieged: RunningYard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = besieged.credentials
    administrator = User(
        besieged.http, known.account, known.user, known.access_key_id, known.secret_access_key, known.region
    )
    good, hostile = administrator.add_user("good"), administrator.add_user("hostile")
    hostile.client("s3").create_bucket(Bucket="hostile")
    with GoodCaller(good) as calm:
        # Long enough for latency quantiles of an idle yard.
        time.sleep(5)
    before = peak_bytes(besieged)
    siege = Siege(hostile)
    stalled = Stalled(hostile)
    with GoodCaller(good) as caller, closing(stalled):
        for kind in ("unsigned", "guessed"):
            stalled.open(60, size=MEBIBYTE - 1, sent=900_000, kind=kind)
            stalled.open(20, size=31 * MEBIBYTE, sent=MEBIBYTE, kind=kind)
        siege.run()
    grown = peak_bytes(besieged) - before
    report = (
        f"hostile clients: {siege.sent} requests ({dict(sorted(siege.statuses.items()))}), {siege.cut} cut off, "
        f"160 stalled; {siege.seconds:.0f} s\n"
        f"another caller: {len(caller.seconds)} calls, p50 {caller.percentile_ms(50):.1f} ms, "
        f"p99 {caller.percentile_ms(99):.1f} ms, worst {1000 * max(caller.seconds):.0f} ms; "
        f"before p50 {calm.percentile_ms(50):.1f} ms, p99 {calm.percentile_ms(99):.1f} ms\n"
        f"the yard: {before / MEBIBYTE:.0f} MiB before, {grown / MEBIBYTE:.0f} MiB more at its peak\n"
    )
    (tmp_path / "hostile-clients.txt").write_text(report)
    with capsys.disabled():
        sys.stdout.write(f"\n{report}")
    assert siege.faults == []
    assert calm.failures == caller.failures == []
    assert len(caller.seconds) > 100, "the other client got too few answers"
    assert grown < MOST_GROWTH_BYTES
    assert besieged.process.poll() is None
    assert good.client("sts").get_caller_identity()["Account"] == good.account


class Siege:
    """The attack: several clients of each kind, each of which calls all operations in its own order."""

    def __init__(self, user: User) -> None:
        self._user = user
        self._names = {"Bucket": "hostile", "Key": "key", "UploadId": "x", "PartNumber": "1"}
        self._lock = threading.Lock()
        self.statuses: Counter[int] = Counter()
        self.faults: list[str] = []
        self.sent = self.cut = 0
        self.seconds = 0.0

    def run(self) -> None:
        begun = time.monotonic()
        kinds = ("signed", "guessed", "unsigned", "cut")
        attackers = [
            threading.Thread(target=self._attack, args=(kind, SEED + number, begun + MOST_S))
            for number, kind in enumerate(kind for kind in kinds for _ in range(ATTACKERS))
        ]
        for attacker in attackers:
            attacker.start()
        for attacker in attackers:
            attacker.join()
        self.seconds = time.monotonic() - begun

    def _attack(self, kind: str, seed: int, deadline: float) -> None:
        dice = random.Random(seed)
        order = list(targets()) * ROUNDS
        dice.shuffle(order)
        for target in order[::ATTACKERS]:
            if time.monotonic() > deadline:
                return
            request = hostile_request(dice, target, self._names, most_bytes=9 * MEBIBYTE)
            if kind == "cut":
                cut_off(self._user, request, after=dice.random())
                self._count(cut=1)
            else:
                self._send(request, kind)

    def _send(self, request: Draft, kind: str) -> None:
        with closing(connection_of(self._user, kind)) as connection:
            begun = time.monotonic()
            try:
                answer = connection.send(request)
            except ConnectionError:
                # The yard refused it before the whole body was sent.
                self._count(sent=1)
                return
            except TimeoutError:
                self._count(sent=1, fault=f"no answer in {PATIENCE_S} s: {request}"[:500])
                return
            took = time.monotonic() - begun
            fault = f"{answer} after {took:.1f} s: {request}"[:500] if is_fault(answer) else ""
            self._count(sent=1, status=answer.status, fault=fault)

    def _count(self, *, sent: int = 0, cut: int = 0, status: int = 0, fault: str = "") -> None:
        with self._lock:
            self.sent += sent
            self.cut += cut
            if status:
                self.statuses[status] += 1
            if fault:
                self.faults.append(fault)

"""A few hostile clients against a real yard; tests/faults/test_hostile_clients.py has many."""

import random
import socket
import time
from collections import Counter
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from tests.system.fuzz.hostile import (
    MEBIBYTE,
    Stalled,
    connection_of,
    cut_off,
    hostile_request,
    is_fault,
    named_request,
    peak_bytes,
    shapes_for,
    spoiled,
)
from tests.system.fuzz.values import Target, targets
from tests.system.fuzz.world import User
from trainyard.testing.yard import RunningYard

ONE_OF_EACH = {
    target.protocol: target
    for target in targets()
    if target.operation.name
    in ("CreateTrainingJob", "CreateUser", "DeleteObjects", "PutMetricData", "AdoptTrainingJobs")
}


@pytest.mark.parametrize("target", ONE_OF_EACH.values(), ids=str)
def test_a_malformed_body_of_any_shape_is_refused_with_a_message(administrator: User, target: Target) -> None:
    faults, long_answers = [], []
    for shape in shapes_for(target):
        with closing(connection_of(administrator, "signed")) as connection:
            for size in (10_000, 900_000):
                request = named_request(target, {"Bucket": "hostile", "UserName": "hostile"})
                answer = connection.send(spoiled(request, shape, size=size))
                faults += [(shape, size, answer)] * is_fault(answer)
                long_answers += [(shape, size)] * (len(answer.body) >= 256 * 1024)
    assert faults == []
    assert long_answers == []


def test_hostile_requests_of_all_kinds_break_nothing(yard: RunningYard, administrator: User) -> None:
    dice, statuses = random.Random(12), Counter[int]()
    names = {"Bucket": "hostile", "Key": "key", "UploadId": "x", "PartNumber": "1"}
    for number, target in enumerate(dice.sample(targets(), 40)):
        request = hostile_request(dice, target, names, most_bytes=MEBIBYTE)
        kind = ("signed", "guessed", "unsigned", "cut")[number % 4]
        if kind == "cut":
            cut_off(administrator, request, after=dice.random())
            continue
        with closing(connection_of(administrator, kind)) as connection:
            answer = connection.send(request)
            assert not is_fault(answer), f"{answer} to {request}"
            assert kind == "signed" or 400 <= answer.status < 500, answer
            statuses[answer.status] += 1
    assert yard.process.poll() is None
    assert statuses[403], "those who do not sign are told so"


def test_no_memory_is_kept_for_bodies_that_strangers_announce_and_do_not_send(
    yard: RunningYard, administrator: User
) -> None:
    before = peak_bytes(yard)
    with closing(Stalled(administrator)) as stalled:
        stalled.open(20, size=31 * MEBIBYTE, sent=4 * MEBIBYTE, kind="unsigned")
        stalled.open(20, size=31 * MEBIBYTE, sent=4 * MEBIBYTE, kind="guessed")
        stalled.open(20, size=MEBIBYTE, sent=900_000, kind="unsigned")
        assert administrator.client("sts").get_caller_identity()["Account"] == administrator.account
        statuses = [b"403"] * 20 + [b"413"] * 20 + [b"403"] * 20
        for connection, status in zip(stalled.sockets, statuses, strict=True):
            connection.settimeout(30)
            assert connection.recv(4096).startswith(b"HTTP/1.1 " + status), "answered before the body has come"
    assert peak_bytes(yard) - before < 32 * MEBIBYTE


def test_a_thousand_requests_at_once_on_one_connection_are_not_all_kept(yard: RunningYard) -> None:
    address = urlsplit(yard.http)
    one = b"GET /_trainyard/health HTTP/1.1\r\nHost: yard\r\n\r\n"
    with closing(socket.create_connection((address.hostname or "", address.port or 0), timeout=30)) as connection:
        connection.sendall(one * 1000)
        answered = b""
        while piece := connection.recv(65536):
            answered += piece
    assert 1 <= answered.count(b"HTTP/1.1 200 OK") < 100
    assert answered.endswith(b"}"), "the last answer is whole, then the connection is closed"


def test_idle_connections_do_not_keep_others_out(yard: RunningYard, administrator: User) -> None:
    address = urlsplit(yard.http)
    place = (address.hostname or "", address.port or 0)
    opened = [socket.create_connection(place, timeout=30) for _ in range(200)]
    try:
        begun = time.monotonic()
        assert administrator.client("sts").get_caller_identity()["Account"] == administrator.account
        assert time.monotonic() - begun < 30
    finally:
        for connection in opened:
            connection.close()

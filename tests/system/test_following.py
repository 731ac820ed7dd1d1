"""Jobs are followed by push: every line arrives once and in order, whatever happens to the yard or the follower."""

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest

from tests.system.fuzz.world import User
from tests.system.trainees import Trainee
from trainyard.foundation.errors import Unavailable
from trainyard.link.agent_process import find_agent_process
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, start_yard
from trainyard.wire.client import CallFailed, Client
from trainyard.wire.models import OWN_MODELS

COUNT = """
import sys, time
for number in range({lines}):
    print("line", number, flush=True)
    time.sleep({pause})
"""
ODD = """
import os
os.write(1, b"plain\\n")
os.write(1, b"one\\rtwo\\r\\n")
os.write(1, b"\\x1b[31mred\\x1b[0m\\n")
os.write(1, b"\\xff\\xfe\\x00 binary\\n")
os.write(1, "line\\u2028separator\\x85\\n".encode())
os.write(1, b"x" * 3_000_000 + b"\\n")
os.write(1, b"no end")
"""


@pytest.fixture(scope="module")
def trainee(administrator: User) -> Trainee:
    return Trainee(administrator.add_user("anna")).prepare()


@pytest.fixture(scope="module")
def client(trainee: Trainee) -> Iterator[Client]:
    with closing(client_of(trainee.user)) as opened:
        yield opened


def client_of(user: User, *, endpoint: str = "", **more: Any) -> Client:
    return Client(endpoint or user.endpoint, user.access_key_id, user.secret_access_key, user.region, **more)


def followed(client: Client, name: str, **more: Any) -> list[dict[str, Any]]:
    """Return everything until the stream ends."""
    with client.stream("trainyard", "FollowJob", TrainingJobName=name, **more) as lines:
        return [json.loads(line) for line in lines]


def of(told: list[dict[str, Any]], kind: str, *members: str) -> list[Any]:
    return [tuple(each[member] for member in members) for each in told if each["kind"] == kind]


def texts(told: list[dict[str, Any]]) -> list[str]:
    return [each["text"] for each in told if each["kind"] == "log" and not each["text"].startswith("[trainyard]")]


@pytest.mark.flow
def test_a_job_is_followed_from_its_create_to_its_end(trainee: Trainee, client: Client) -> None:
    trainee.start("whole", COUNT.format(lines=20, pause=0.02))
    told = followed(client, "whole")
    assert texts(told) == [f"line {number}" for number in range(20)]
    statuses = [secondary for (secondary,) in of(told, "status", "secondary")]
    described = trainee.describe("whole")
    assert statuses == [step["Status"] for step in described["SecondaryStatusTransitions"]]
    assert told[-1]["kind"] == "ended"
    assert (told[-1]["status"], told[-1]["secondary"]) == ("Completed", "Completed")
    notes = client.call("trainyard", "DescribeJob", TrainingJobName="whole")["Notes"]
    assert [text for (text,) in of(told, "note", "text")] == notes
    assert {each["instance"] for each in told if each["kind"] == "log"} == {"algo-1"}


def test_lines_come_while_the_program_runs(trainee: Trainee, client: Client) -> None:
    """The program ends only when a follower has seen its line and stopped it."""
    trainee.start("live", "import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.05)\n")
    told = []
    with client.stream("trainyard", "FollowJob", TrainingJobName="live") as lines:
        for line in lines:
            told.append(json.loads(line))
            if told[-1].get("text") == "ready":
                assert trainee.describe("live")["TrainingJobStatus"] == "InProgress"
                trainee.sagemaker.stop_training_job(TrainingJobName="live")
    assert told[-1] | {"cursor": ""} == {"kind": "ended", "status": "Stopped", "secondary": "Stopped", "cursor": ""}


def test_an_ended_job_is_streamed_whole_and_again_from_any_cursor(trainee: Trainee, client: Client) -> None:
    trainee.run("again", COUNT.format(lines=50, pause=0))
    told = followed(client, "again")
    assert texts(told) == [f"line {number}" for number in range(50)]
    for number in range(0, len(told), 7):
        rest = followed(client, "again", Cursor=told[number]["cursor"])
        assert rest == told[number + 1 :] if number < len(told) - 1 else told[-1:]
    assert followed(client, "again", Cursor=told[-1]["cursor"]) == told[-1:]
    assert texts(followed(client, "again", Logs=False)) == []


def test_the_text_of_a_line_is_that_of_get_log_events(trainee: Trainee, client: Client) -> None:
    trainee.run("odd", ODD)
    (stream,) = trainee.streams("odd")
    read: list[str] = []
    token: dict[str, str] = {}
    logs = trainee.user.client("logs")
    while True:
        page = logs.get_log_events(
            logGroupName="/aws/sagemaker/TrainingJobs", logStreamName=stream, startFromHead=True, **token
        )
        if not page["events"]:
            break
        read += [event["message"] for event in page["events"]]
        token = {"nextToken": page["nextForwardToken"]}
    told = followed(client, "odd")
    assert [each["text"] for each in told if each["kind"] == "log"] == read
    assert "one\rtwo" in read
    assert "no end" in read
    assert sum(text.count("x") for text in read) >= 3_000_000


def test_lines_of_several_instances_keep_their_order(trainee: Trainee, client: Client) -> None:
    several = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}
    trainee.start("pair", COUNT.format(lines=200, pause=0.001), ResourceConfig=several)
    told = followed(client, "pair")
    for instance in ("algo-1", "algo-2"):
        mine = [each for each in told if each.get("instance") == instance]
        assert texts(mine) == [f"line {number}" for number in range(200)]


def test_a_job_that_is_tried_again_is_followed_into_its_next_attempt(
    trainee: Trainee, client: Client, yard: RunningYard
) -> None:
    script = "import time\nprint('up', flush=True)\nwhile True: time.sleep(0.05)\n"
    trainee.start("lost", script, RetryStrategy={"MaximumRetryAttempts": 1})
    told: list[dict[str, Any]] = []
    with client.stream("trainyard", "FollowJob", TrainingJobName="lost") as lines:
        for line in lines:
            told.append(json.loads(line))
            if told[-1].get("text") == "up" and told[-1]["attempt"] == 1:
                kill_agents(yard)
            elif told[-1].get("text") == "up":
                trainee.sagemaker.stop_training_job(TrainingJobName="lost")
    assert [(each["attempt"], each["text"]) for each in told if each.get("text") == "up"] == [(1, "up"), (2, "up")]
    assert "Restarting" in [secondary for (secondary,) in of(told, "status", "secondary")]
    assert told[-1]["secondary"] == "Stopped"
    for number in range(0, len(told), 5):
        again = followed(client, "lost", Cursor=told[number]["cursor"])
        for kind, member in (("log", "text"), ("status", "secondary"), ("note", "text"), ("ended", "status")):
            assert of(again, kind, member) == of(told[number + 1 :], kind, member)


def kill_agents(yard: RunningYard) -> None:
    for folder in yard.home.jobs.glob("*/*/algo-*"):
        presence = find_agent_process(folder)
        if presence is not None and presence.is_alive:
            os.kill(presence.pid, signal.SIGKILL)


def test_a_follower_continues_where_it_was_after_the_yard_was_killed(tmp_path: Path) -> None:
    yard = start_yard(tmp_path / "yard")
    known = yard.credentials
    user = User(yard.http, known.account, known.user, known.access_key_id, known.secret_access_key, known.region)
    trainee = Trainee(user).prepare()
    trainee.start("survivor", COUNT.format(lines=120, pause=0.05))
    told: list[dict[str, Any]] = []
    for kills in range(3):
        with closing(client_of(user, endpoint=yard.http)) as client:
            killed = follow_until(client, told, kill=yard if kills < 2 else None, lines=len(texts(told)) + 25)
        if not killed:
            break
        yard = start_yard(tmp_path / "yard")
    yard.stop()
    assert texts(told) == [f"line {number}" for number in range(120)]
    assert [secondary for (secondary,) in of(told, "status", "secondary")] == list(
        dict.fromkeys(secondary for (secondary,) in of(told, "status", "secondary"))
    )
    assert told[-1]["kind"] == "ended"


def follow_until(client: Client, told: list[dict[str, Any]], *, kill: RunningYard | None, lines: int) -> bool:
    """Follow a job, kill the yard after this many lines, and return whether it was killed."""
    cursor = {"Cursor": told[-1]["cursor"]} if told else {}
    try:
        with client.stream("trainyard", "FollowJob", TrainingJobName="survivor", **cursor) as stream:
            for line in stream:
                told.append(json.loads(line))
                if kill and len(texts(told)) == lines:
                    kill.kill()
    except Unavailable:
        return True
    return False


def test_a_yard_that_is_stopped_ends_the_stream_without_saying_that_the_job_ended(tmp_path: Path) -> None:
    yard = start_yard(tmp_path / "yard")
    known = yard.credentials
    user = User(yard.http, known.account, known.user, known.access_key_id, known.secret_access_key, known.region)
    Trainee(user).prepare().start("goes-on", COUNT.format(lines=60, pause=0.05))
    told: list[dict[str, Any]] = []
    with (
        closing(client_of(user, endpoint=yard.https, ca_bundle=yard.home.ca_bundle)) as client,
        client.stream("trainyard", "FollowJob", TrainingJobName="goes-on") as lines,
    ):
        for line in lines:
            told.append(json.loads(line))
            if len(texts(told)) == 5:
                yard.process.terminate()
    assert yard.process.wait(timeout=30) == 0
    assert told[-1]["kind"] != "ended"
    yard = start_yard(tmp_path / "yard")
    with closing(client_of(user, endpoint=yard.http)) as client:
        told += followed(client, "goes-on", Cursor=told[-1]["cursor"])
    yard.stop()
    assert texts(told) == [f"line {number}" for number in range(60)]


def test_errors_come_before_the_first_line(
    administrator: User, trainee: Trainee, client: Client, yard: RunningYard
) -> None:
    trainee.run("mine", COUNT.format(lines=1, pause=0))
    stranger = administrator.add_user("ben")
    with closing(client_of(stranger)) as other, pytest.raises(CallFailed) as caught:
        followed(other, "mine")
    assert (caught.value.code, caught.value.status) == ("ResourceNotFound", 404)
    with pytest.raises(CallFailed, match="cursor") as caught:
        followed(client, "mine", Cursor="123456789abc.0.0.1")
    assert caught.value.code == "ValidationException"
    with closing(client_of(administrator)) as admin:
        assert texts(followed(admin, "mine")) == ["line 0"]
    assert yard.process.poll() is None


def test_two_hundred_followers_and_slow_ones_keep_nobody_waiting(trainee: Trainee, client: Client) -> None:
    trainee.start("popular", COUNT.format(lines=100, pause=0.05) + "print('z' * 200_000)\n")
    with ExitStack() as stack, ThreadPoolExecutor(200) as threads:
        for _ in range(5):  # who follow and never read
            stack.enter_context(idle_follower(trainee.user, "popular"))
        follows = [threads.submit(followed, client, "popular") for _ in range(200)]
        for _ in range(20):
            assert trainee.describe("popular")["TrainingJobName"] == "popular"
        wanted = [f"line {number}" for number in range(100)] + ["z" * 200_000]
        for each in follows:
            assert texts(each.result(timeout=120)) == wanted


def idle_follower(user: User, name: str) -> socket.socket:
    """Open a connection that follows a job and reads nothing."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    url = f"{user.endpoint}/jobs/{name}/follow"
    request = AWSRequest("POST", url, data=b"{}", headers={"Content-Length": "2"})
    SigV4Auth(Credentials(user.access_key_id, user.secret_access_key), "trainyard", user.region).add_auth(request)
    parts = urlsplit(user.endpoint)
    connection = socket.create_connection((parts.hostname or "", parts.port or 80))
    head = "".join(f"{field}: {value}\r\n" for field, value in request.headers.items())
    connection.sendall(f"POST /jobs/{name}/follow HTTP/1.1\r\nHost: {parts.netloc}\r\n{head}\r\n{{}}".encode())
    return connection


def test_the_connections_of_those_who_left_are_gone(trainee: Trainee, yard: RunningYard) -> None:
    trainee.start("left", "import time\nprint('up', flush=True)\nwhile True: time.sleep(0.05)\n")
    trainee.reach("left", "Training")
    before = open_files(yard)
    connections = [idle_follower(trainee.user, "left") for _ in range(50)]
    assert all(connection.recv(15) == b"HTTP/1.1 200 OK" for connection in connections)
    for connection in connections:
        connection.close()
    # Other descriptors come and go meanwhile: databases, idle connections of the test's own clients.
    eventually(lambda: open_files(yard) < before + len(connections) // 2)
    trainee.sagemaker.stop_training_job(TrainingJobName="left")
    trainee.reach("left", "Stopped")


def open_files(yard: RunningYard) -> int:
    return len(list(Path(f"/proc/{yard.process.pid}/fd").iterdir()))


def test_any_client_on_botocore_can_follow(trainee: Trainee, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trainee.run("foreign", COUNT.format(lines=3, pause=0))
    monkeypatch.setenv("AWS_DATA_PATH", str(OWN_MODELS))
    user = trainee.user
    keys = {"aws_access_key_id": user.access_key_id, "aws_secret_access_key": user.secret_access_key}
    api: Any = boto3.session.Session(region_name=user.region, **keys).client("trainyard", endpoint_url=user.endpoint)
    told = [json.loads(line) for line in api.follow_job(TrainingJobName="foreign")["Events"].iter_lines()]
    assert texts(told) == ["line 0", "line 1", "line 2"]
    with pytest.raises(api.exceptions.ResourceNotFound):
        api.describe_job(TrainingJobName="nowhere")


def test_followers_in_threads_share_one_client(trainee: Trainee, client: Client) -> None:
    trainee.start("shared", COUNT.format(lines=30, pause=0.01))
    results: list[list[str]] = []
    threads = [threading.Thread(target=lambda: results.append(texts(followed(client, "shared")))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[f"line {number}" for number in range(30)]] * 4

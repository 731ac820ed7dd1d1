"""Our own client against a real yard, and against servers that are not a yard."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.testing.yard import RunningYard
from trainyard.wire.client import CallFailed, Client


def client_of(yard: RunningYard, *, endpoint: str = "", **more: Any) -> Client:
    known = yard.credentials
    keys = (known.access_key_id, more.pop("secret", known.secret_access_key), known.region)
    return Client(endpoint or yard.http, *keys, **more)


@pytest.fixture(scope="module")
def client(yard: RunningYard) -> Iterator[Client]:
    with closing(client_of(yard)) as opened:
        yield opened


@pytest.mark.flow
def test_calls_speak_every_protocol(client: Client, yard: RunningYard) -> None:
    account = client.call("sts", "GetCallerIdentity")["Account"]
    assert account == yard.credentials.account
    client.call("s3", "CreateBucket", Bucket="protocols", CreateBucketConfiguration={"LocationConstraint": "eu-west-3"})
    client.call("s3", "PutObject", Bucket="protocols", Key="a b/ü+.txt", Body=b"text", Metadata={"k": "v"})
    found = client.call("s3", "GetObject", Bucket="protocols", Key="a b/ü+.txt")
    assert (found["Body"], found["Metadata"], found["ContentLength"]) == (b"text", {"k": "v"}, 4)
    listed = client.call("s3", "ListObjectsV2", Bucket="protocols", Prefix="a b/")
    assert [entry["Key"] for entry in listed["Contents"]] == ["a b/ü+.txt"]
    client.call("s3", "DeleteObjects", Bucket="protocols", Delete={"Objects": [{"Key": "a b/ü+.txt"}]})
    assert client.call("s3", "ListObjectsV2", Bucket="protocols")["KeyCount"] == 0
    client.call("logs", "CreateLogGroup", logGroupName="/protocols")
    groups = client.call("logs", "DescribeLogGroups", logGroupNamePrefix="/protocols")["logGroups"]
    assert [group["logGroupName"] for group in groups] == ["/protocols"]
    assert client.call("cloudwatch", "ListMetrics", Namespace="protocols")["Metrics"] == []


def test_calls_over_https_trust_the_yards_own_authority(yard: RunningYard) -> None:
    with closing(client_of(yard, endpoint=yard.https, ca_bundle=yard.home.ca_bundle)) as secure:
        assert secure.call("sts", "GetCallerIdentity")["Account"] == yard.credentials.account
    with (
        closing(client_of(yard, endpoint=yard.https)) as trusting_nobody,
        pytest.raises(Unavailable, match="not trusted"),
    ):
        trusting_nobody.call("sts", "GetCallerIdentity")


def test_a_body_is_read_line_by_line(client: Client) -> None:
    client.call("s3", "CreateBucket", Bucket="lines")
    client.call("s3", "PutObject", Bucket="lines", Key="k", Body=b"one\n\ntwo" + b"x" * 200_000 + b"\nopen")
    with client.stream("s3", "GetObject", Bucket="lines", Key="k") as lines:
        assert list(lines) == [b"one", b"", b"two" + b"x" * 200_000, b"open"]
    with (
        pytest.raises(CallFailed) as caught,
        client.stream("s3", "GetObject", Bucket="lines", Key="absent"),
    ):
        pytest.fail("there is nothing to read")
    assert (caught.value.code, caught.value.status) == ("NoSuchKey", 404)


def test_an_error_of_whoever_reads_a_stream_stays_its_own(client: Client) -> None:
    client.call("s3", "CreateBucket", Bucket="broken-pipe")
    client.call("s3", "PutObject", Bucket="broken-pipe", Key="k", Body=b"one\ntwo\n")

    def print_to_nobody() -> None:
        with client.stream("s3", "GetObject", Bucket="broken-pipe", Key="k") as lines:
            assert next(lines) == b"one"
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        print_to_nobody()


def test_temporary_credentials_are_sent_with_their_token(client: Client, yard: RunningYard) -> None:
    keys = client.call("sts", "GetSessionToken")["Credentials"]
    arguments = (yard.http, keys["AccessKeyId"], keys["SecretAccessKey"], yard.credentials.region)
    with closing(Client(*arguments, session_token=keys["SessionToken"])) as session:
        assert session.call("iam", "GetUser")["User"]["UserName"] == yard.credentials.user
        assert "Buckets" in session.call("s3", "ListBuckets")
    with closing(Client(*arguments)) as without, pytest.raises(CallFailed) as caught:
        without.call("s3", "ListBuckets")
    assert (caught.value.code, caught.value.status) == ("InvalidAccessKeyId", 403)


def test_an_error_of_the_service_carries_its_code(client: Client, yard: RunningYard) -> None:
    for service, operation, parameters, expected in (
        ("iam", "GetRole", {"RoleName": "absent"}, ("NoSuchEntity", 404)),
        ("s3", "GetObject", {"Bucket": "absent-bucket", "Key": "k"}, ("NoSuchBucket", 404)),
        ("s3", "HeadBucket", {"Bucket": "absent-bucket"}, ("404", 404)),
    ):
        with pytest.raises(CallFailed) as caught:
            client.call(service, operation, **parameters)
        assert (caught.value.code, caught.value.status) == expected
        assert caught.value.message
    with closing(client_of(yard, secret="wrong")) as thief:
        for service, operation, code in (
            ("s3", "ListBuckets", "SignatureDoesNotMatch"),
            ("sts", "GetCallerIdentity", "SignatureDoesNotMatch"),
            ("logs", "DescribeLogGroups", "InvalidSignatureException"),
        ):
            with pytest.raises(CallFailed) as caught:
                thief.call(service, operation)
            assert (caught.value.code, caught.value.status) == (code, 403)


def test_an_invalid_request_is_not_sent(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="no operation Fly"):
        client.call("s3", "Fly")
    with pytest.raises(InvalidRequest, match="RoleName"):
        client.call("iam", "GetRole")
    with pytest.raises(InvalidRequest, match="not an address"):
        Client("127.0.0.1:4400", "a", "b", "c")


def test_threads_share_a_client(client: Client, yard: RunningYard) -> None:
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: client.call("sts", "GetCallerIdentity")["Account"], range(40)))
    assert set(answers) == {yard.credentials.account}


def test_nothing_that_listens_is_said_so_with_what_to_do(yard: RunningYard) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening, so nobody else can be there
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Unavailable, match="trainyard up") as caught:
            client_of(yard, endpoint=address).call("sts", "GetCallerIdentity")
    assert address in caught.value.message


@contextmanager
def server_that_says(*answers: bytes, hung_up: threading.Event | None = None) -> Iterator[str]:
    """Answer one request per connection and close it, as a server does with an idle connection."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:

        def serve() -> None:
            for answer in answers:
                with listening.accept()[0] as connection:
                    while b"\r\n\r\n" not in connection.recv(65536):
                        pass
                    connection.sendall(answer)
                if hung_up is not None:
                    hung_up.set()

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


def http_answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def test_a_connection_that_was_dropped_at_rest_is_opened_again(yard: RunningYard) -> None:
    answer = http_answer(b"<ListAllMyBucketsResult><Buckets/></ListAllMyBucketsResult>")
    hung_up = threading.Event()
    with (
        server_that_says(answer, answer, hung_up=hung_up) as address,
        closing(client_of(yard, endpoint=address)) as client,
    ):
        client.call("s3", "ListBuckets")
        assert hung_up.wait(timeout=30)
        client.call("s3", "ListBuckets")


def test_an_invalid_answer_is_unavailable(yard: RunningYard) -> None:
    for answer in (b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n<a", http_answer(b"<a")):
        with (
            server_that_says(answer) as address,
            closing(client_of(yard, endpoint=address)) as client,
            pytest.raises(Unavailable),
        ):
            client.call("s3", "ListBuckets")


def test_a_server_that_never_answers_times_out(yard: RunningYard) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(Unavailable, match=r"within 0\.1 s"):
            client_of(yard, endpoint=address, timeout_s=0.1).call("s3", "ListBuckets")


def test_a_bundle_that_is_not_there_is_named(yard: RunningYard) -> None:
    with pytest.raises(InvalidRequest, match=r"absent\.pem"):
        client_of(yard, endpoint=yard.https, ca_bundle=Path("absent.pem")).call("sts", "GetCallerIdentity")

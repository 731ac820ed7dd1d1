"""The app alone, called by ASGI, with real records and objects."""

import asyncio
import hashlib
import json
import logging
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.simulated_compute import simulated_compute
from trainyard.foundation.clock import utc_now
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.server.app import App
from trainyard.server.identity import Identities
from trainyard.server.records.sql import open_records
from trainyard.server.services.contract import Yard
from trainyard.server.streaming import Followers
from trainyard.wire.models import Models
from trainyard.wire.routing import Router

HOST = "localhost:4780"


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass
class Door:
    """Calls the app as a listener would."""

    app: App
    credentials: Credentials
    bodies_asked_for: int = 0

    def signed(self, service: str, method: str, path: str, *, body: bytes = b"", **headers: str) -> Answer:
        request = AWSRequest(method, f"http://{HOST}{path}", data=body, headers=headers)
        signer = S3SigV4Auth if service == "s3" else SigV4Auth
        signer(self.credentials, service, "eu-central-1").add_auth(request)
        return self.plain(method, path, body=body, headers={"host": HOST, **dict(request.headers.items())})

    def plain(self, method: str, path: str, *, body: bytes = b"", headers: dict[str, str]) -> Answer:
        target, _, query = path.partition("?")
        fields = {name.lower(): value for name, value in headers.items()}
        if body:
            fields.setdefault("content-length", str(len(body)))
        scope = {
            "type": "http",
            "method": method,
            "scheme": "http",
            "path": target,
            "raw_path": target.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
        }
        answer = Answer()

        async def receive() -> MutableMapping[str, Any]:
            self.bodies_asked_for += 1
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                answer.body += message["body"]

        asyncio.run(self.app(scope, receive, send))
        return answer

    def json(self, service: str, target: str, **shape: Any) -> Answer:
        headers = {"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.1"}
        return self.signed(service, "POST", "/", body=json.dumps(shape).encode(), **headers)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    records = open_records(f"sqlite:///{tmp_path / 'records.sqlite'}")
    objects = FilesystemObjects(tmp_path / "objects")
    identities = Identities(records)
    key = identities.ensure_admin(now=utc_now())
    assert key is not None
    compute, followers = simulated_compute(tmp_path), Followers(records, tmp_path / "jobs")
    yard = Yard(records, objects, identities, tmp_path / "logs", tmp_path / "metrics", compute, followers)
    app = App(yard, Router(Models(), ["localhost"]), utc_now, 1024 * 1024)
    yield Door(app, Credentials(key.id, key.secret))
    objects.close()
    records.close()


def test_health_needs_no_signature(door: Door) -> None:
    answer = door.plain("GET", "/_trainyard/health", headers={"host": HOST})
    assert answer.status == 200
    assert json.loads(answer.body)["service"] == "trainyard"


def test_a_signed_call_is_answered_for_any_region(door: Door) -> None:
    assert door.json("logs", "Logs_20140328.CreateLogGroup", logGroupName="g").status == 200
    groups = json.loads(door.json("logs", "Logs_20140328.DescribeLogGroups").body)["logGroups"]
    assert groups[0]["arn"].startswith("arn:aws:logs:eu-central-1:")


def test_an_unsigned_call_is_refused_in_the_words_of_its_service(door: Door) -> None:
    answer = door.plain("GET", "/bucket/key", headers={"host": HOST})
    assert answer.status == 403
    assert b"<Code>AccessDenied</Code>" in answer.body


def test_an_unserved_operation_is_named(door: Door) -> None:
    answer = door.json("sagemaker", "SageMaker.CreateLabelingJob")
    assert answer.status == 400
    assert "sagemaker operation CreateLabelingJob" in json.loads(answer.body)["message"]


def test_an_unserved_s3_operation_is_not_implemented(door: Door) -> None:
    door.signed("s3", "PUT", "/bucket")
    answer = door.signed("s3", "PUT", "/bucket?versioning", body=b"<VersioningConfiguration/>")
    assert answer.status == 501
    assert b"<Code>NotImplemented</Code>" in answer.body
    assert b"PutBucketVersioning" in answer.body


def test_an_unknown_error_is_an_internal_failure_that_the_log_explains(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    def stopped_clock() -> datetime:
        raise ZeroDivisionError

    door.app = replace(door.app, clock=stopped_clock)
    with caplog.at_level(logging.ERROR):
        answer = door.json("logs", "Logs_20140328.DescribeLogGroups")
    assert answer.status == 500
    assert json.loads(answer.body)["__type"].endswith("InternalFailure")
    assert "ZeroDivisionError" in caplog.text
    assert answer.headers["x-amzn-RequestId"] in json.loads(answer.body)["message"]


def test_a_body_over_the_limit_is_refused(door: Door) -> None:
    answer = door.json("logs", "Logs_20140328.CreateLogGroup", logGroupName="g" * 2 * 1024 * 1024)
    assert answer.status == 413


def test_a_refused_upload_that_waits_to_continue_closes_the_connection(door: Door) -> None:
    headers = {"host": HOST, "expect": "100-continue", "content-length": "5"}
    answer = door.plain("PUT", "/bucket/key", body=b"bytes", headers=headers)
    assert answer.status == 403
    assert answer.headers["connection"] == "close"
    assert door.bodies_asked_for == 0


JSON_CALL = {"X-Amz-Target": "SageMaker.CreateTrainingJob", "Content-Type": "application/x-amz-json-1.1"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({**JSON_CALL}, 403, b"MissingAuthenticationToken"),
        ({**FORM}, 403, b"MissingAuthenticationToken"),
        ({**JSON_CALL, "authorization": "{other key}"}, 403, b"UnrecognizedClient"),
        ({**JSON_CALL, "authorization": "{signed}", "x-amz-date": "{yesterday}"}, 403, b"InvalidSignature"),
        ({**JSON_CALL, "authorization": "{signed}", "x-amz-date": "99991231T235959Z"}, 403, b"IncompleteSignature"),
        ({**JSON_CALL, "authorization": "{signed}", "content-length": "33000000"}, 413, b"RequestEntityTooLarge"),
    ],
    ids=["unsigned", "unsigned form", "unknown key", "of yesterday", "of the year 9999", "too large"],
)
def test_a_hopeless_request_is_refused_before_its_body_is_requested(
    door: Door, fields: dict[str, str], status: int, code: bytes
) -> None:
    now = utc_now()
    today, yesterday = now, now - timedelta(days=1)
    key = door.credentials.access_key
    claims = {
        "{signed}": _claim(key, (yesterday if fields.get("x-amz-date") == "{yesterday}" else today)),
        "{other key}": _claim("AKIAIOSFODNN7EXAMPLE", today),
        "{yesterday}": f"{yesterday:%Y%m%dT%H%M%SZ}",
    }
    headers = {"host": HOST, "x-amz-date": f"{today:%Y%m%dT%H%M%SZ}", "content-length": "1000"}
    headers |= {name: claims.get(value, value) for name, value in fields.items()}
    answer = door.plain("POST", "/", body=b"Action=GetUser", headers=headers)
    assert (answer.status, code in answer.body) == (status, True), answer.body
    assert door.bodies_asked_for == 0


def _claim(key: str, day: datetime) -> str:
    return (
        f"AWS4-HMAC-SHA256 Credential={key}/{day:%Y%m%d}/eu-west-1/sagemaker/aws4_request,"
        "SignedHeaders=host;x-amz-date;x-amz-target,Signature=00"
    )


def test_a_wrong_signature_that_declares_its_body_is_refused_before_the_body_is_requested(door: Door) -> None:
    stranger = replace(door, credentials=Credentials(door.credentials.access_key, "a guess"))
    digest = {"X-Amz-Content-SHA256": hashlib.sha256(b"{}").hexdigest()}
    answer = stranger.signed("sagemaker", "POST", "/", body=b"{}", **JSON_CALL, **digest)
    assert answer.status == 403
    assert stranger.bodies_asked_for == 0
    answer = door.signed("sagemaker", "POST", "/", body=b"{}", **JSON_CALL, **digest)
    assert (answer.status, b"ValidationException" in answer.body) == (400, True), "the right one is read and validated"


@pytest.mark.parametrize("value", [b"{}", b"[]", b"1", b'"tag"', b'{"Key":"a"}'], ids=str)
def test_a_hundred_thousand_values_are_refused_unread(door: Door, value: bytes) -> None:
    body = b'{"TrainingJobName":"a","Tags":[' + b",".join([value] * 90_000) + b"]}"
    assert len(body) < 1024 * 1024 or value.startswith(b'{"Key"')
    answer = door.signed("sagemaker", "POST", "/", body=body, **JSON_CALL)
    assert answer.status in (400, 413)
    assert b"more than 10000 values" in answer.body or b"at most 1048576" in answer.body


@pytest.mark.parametrize("written", ["9" * 5000, "9" * 17, "-1", "1e3", "٣".encode().decode("latin-1")])
@pytest.mark.parametrize("name", ["x-amz-decoded-content-length", "x-amz-mp-object-size", "if-modified-since"])
def test_a_number_or_a_date_of_any_length_breaks_nothing(door: Door, name: str, written: str) -> None:
    door.signed("s3", "PUT", "/bucket")
    assert door.signed("s3", "PUT", "/bucket/key", body=b"abc", **{name: written}).status < 500
    assert door.signed("s3", "GET", "/bucket/key", body=b"", **{name: written}).status < 500


def test_a_long_body_is_parsed_off_the_loop_with_the_same_result(door: Door) -> None:
    shape = {"logGroupName": "g", "tags": {f"key-{number}": "v" * 256 for number in range(50)}}
    assert len(json.dumps(shape)) < 16 * 1024
    assert door.json("logs", "Logs_20140328.CreateLogGroup", **shape).status == 200
    long = {"logGroupName": "h", "tags": {f"key-{number}": "v" * 256 for number in range(50)}, "unknown": "x" * 20_000}
    assert door.json("logs", "Logs_20140328.CreateLogGroup", **long).status == 200
    wrong = door.json("logs", "Logs_20140328.CreateLogGroup", logGroupName="*" * 20_000)
    assert (wrong.status, json.loads(wrong.body)["__type"]) == (400, "InvalidParameterException")


def test_objects_are_complete_without_sendfile(door: Door) -> None:
    content = bytes(range(256)) * 4096
    door.signed("s3", "PUT", "/bucket")
    assert door.signed("s3", "PUT", "/bucket/key", body=content, **{"Content-Length": str(len(content))}).status == 200
    answer = door.signed("s3", "GET", "/bucket/key")
    assert answer.body == content
    assert answer.headers["Content-Length"] == str(len(content))

"""The messages that actions of rules send to real gateways."""

import hashlib
import hmac
import socket
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from tests.system.gateways import http_server, mail_server
from trainyard.server.control.actions.delivery import DeliveryFailed, deliver
from trainyard.server.gateways import Gateways
from trainyard.server.jobs.rule_actions import RuleAction

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
FINDING = {"message": "fc.weight is NaN.", "step": 7, "tensor": "fc.weight", "value": "nan", "severity": "critical"}


def action(name: str, endpoint: str) -> RuleAction:
    return RuleAction(
        key="job-id/ExplodingTensor/1",
        job="mnist",
        job_arn="arn:aws:sagemaker:us-east-1:111111111111:training-job/mnist",
        rule="ExplodingTensor",
        action={"name": name, "endpoint": endpoint},
        asked_at=NOON,
        finding=FINDING,
    )


@pytest.mark.flow
def test_a_mail_says_what_was_found_and_is_the_same_mail_at_every_try() -> None:
    with mail_server(refusals=1) as mailbox:
        gateways = Gateways(smtp_url=f"smtp://127.0.0.1:{mailbox.port}", smtp_from="yard@example.com")
        with pytest.raises(DeliveryFailed, match="421 busy") as caught:
            deliver(action("email", "anna@example.com"), gateways, now=NOON)
        assert not caught.value.is_final
        for _ in range(2):
            told = deliver(action("email", "anna@example.com"), gateways, now=NOON)
        assert told == "The mail server accepted the message for anna@example.com."
    first, second = mailbox.mails
    assert (first.sender, first.recipients) == ("yard@example.com", ["anna@example.com"])
    for line in ("Subject: Rule ExplodingTensor found an issue in training job mnist", "fc.weight is NaN.", "Step: 7"):
        assert line in first.text
    assert "Message-ID: <" in first.text
    assert first.text == second.text


def test_an_address_that_does_not_exist_is_not_tried_again() -> None:
    with mail_server() as mailbox:
        gateways = Gateways(smtp_url=f"smtp://127.0.0.1:{mailbox.port}", smtp_from="yard@example.com")
        with pytest.raises(DeliveryFailed, match="550 no such user") as caught:
            deliver(action("email", "nobody@example.com"), gateways, now=NOON)
    assert caught.value.is_final


def test_a_webhook_is_signed_and_carries_a_key_by_which_doubles_are_known() -> None:
    with http_server(503, 500, 200) as hook:
        gateways = Gateways(webhook_hosts=("127.0.0.1",), webhook_secret="s3cret")
        url = f"http://127.0.0.1:{hook.port}/hooks?team=ml"
        for status in (503, 500):
            with pytest.raises(DeliveryFailed, match=f"127.0.0.1 answered {status}") as caught:
                deliver(action("webhook", url), gateways, now=NOON)
            assert not caught.value.is_final
        assert deliver(action("webhook", url), gateways, now=NOON) == "127.0.0.1 answered 200 OK heard"
    last = hook.posted[-1]
    assert last.path == "/hooks?team=ml"
    assert (last.values["rule"], last.values["finding"]) == ("ExplodingTensor", FINDING)
    assert {each.headers["Idempotency-Key"] for each in hook.posted} == {"job-id/ExplodingTensor/1"}
    stamp = last.headers["X-Trainyard-Timestamp"]
    signed = hmac.new(b"s3cret", stamp.encode() + b"." + last.body, hashlib.sha256).hexdigest()
    assert last.headers["X-Trainyard-Signature"] == f"sha256={signed}"


@pytest.mark.parametrize("status", [302, 404])
def test_a_webhook_that_redirects_or_is_unknown_fails_and_is_not_followed(status: int) -> None:
    with http_server(status) as hook:
        gateways = Gateways(webhook_hosts=(f"127.0.0.1:{hook.port}",))
        with pytest.raises(DeliveryFailed, match=f"answered {status}") as caught:
            deliver(action("webhook", f"http://127.0.0.1:{hook.port}/"), gateways, now=NOON)
    assert caught.value.is_final
    assert len(hook.posted) == 1


def test_slack_and_text_messages_get_what_they_understand() -> None:
    with http_server() as hook:
        base = f"http://127.0.0.1:{hook.port}"
        gateways = Gateways(webhook_hosts=("127.0.0.1",), sms_url=f"{base}/sms")
        deliver(action("slack", f"{base}/services/T0"), gateways, now=NOON)
        deliver(action("sms", "+4915112345678"), gateways, now=NOON)
    slack, sms = hook.posted
    assert "fc.weight is NaN." in str(slack.values["text"])
    assert (sms.path, sms.values["to"]) == ("/sms", "+4915112345678")
    assert sms.values["text"] == "Rule ExplodingTensor found an issue in training job mnist: fc.weight is NaN."


@pytest.mark.parametrize("name", ["webhook", "email"])
def test_a_gateway_that_never_answers_takes_no_longer_than_its_limit(name: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as deaf:
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        gateways = Gateways(
            smtp_url=f"smtp://{address}",
            smtp_from="yard@example.com",
            webhook_hosts=("127.0.0.1",),
            timeout=timedelta(seconds=0.3),
        )
        endpoint = "anna@example.com" if name == "email" else f"http://{address}/"
        began = time.monotonic()
        with pytest.raises(DeliveryFailed) as caught:
            deliver(action(name, endpoint), gateways, now=NOON)
    assert not caught.value.is_final
    assert time.monotonic() - began < 5


def test_a_host_that_is_no_longer_listed_is_not_called() -> None:
    with http_server() as hook, pytest.raises(DeliveryFailed, match="webhook_hosts") as caught:
        deliver(action("webhook", f"http://127.0.0.1:{hook.port}/"), Gateways(), now=NOON)
    assert caught.value.is_final
    assert hook.posted == []

from datetime import timedelta
from typing import Any

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.gateways import Gateways, gateways_of, is_allowed


def described(**given: Any) -> Gateways:
    empty = dict.fromkeys(("smtp_url", "smtp_from", "sms_url", "webhook_hosts", "webhook_secret", "commands"), "")
    return gateways_of(**{**empty, "timeout": timedelta(seconds=1), "patience": timedelta(seconds=1), **given})


def test_nothing_is_set_up_unless_somebody_did() -> None:
    gateways = described()
    assert (gateways.smtp_url, gateways.sms_url, gateways.webhook_hosts, gateways.commands) == ("", "", (), {})


def test_commands_are_named_with_all_their_words() -> None:
    commands = described(commands="page=/usr/bin/page --team 'ml ops'; ticket=/opt/ticket").commands
    assert commands == {"page": ["/usr/bin/page", "--team", "ml ops"], "ticket": ["/opt/ticket"]}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"smtp_url": "mail.example.com"}, "smtp_url is no URL that begins with smtp://"),
        ({"smtp_url": "smtp://mail.example.com"}, "smtp_from"),
        ({"sms_url": "ftp://sms.example.com"}, "sms_url is no URL"),
        ({"commands": "page=page"}, "whole path"),
        ({"commands": "/usr/bin/page"}, "whole path"),
        ({"commands": "page=/usr/bin/page 'x"}, "No closing quotation"),
    ],
)
def test_a_gateway_that_cannot_be_is_refused_when_the_yard_starts(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        described(**given)


def test_secrets_are_not_shown_where_gateways_are() -> None:
    shown = repr(described(smtp_url="smtp://u:pass@h", smtp_from="a@b", webhook_secret="hidden"))
    assert "pass" not in shown
    assert "hidden" not in shown


@pytest.mark.parametrize(
    ("url", "is_it"),
    [
        ("https://hooks.example.com/x", True),
        ("http://HOOKS.example.com:8080/x", True),
        ("https://ops.example.com:8443/", True),
        ("https://ops.example.com/", False),
        ("https://hooks.example.com.evil.org/", False),
        ("https://evil.org/hooks.example.com", False),
        ("https://hooks.example.com@evil.org/", False),
        ("ftp://hooks.example.com/", False),
    ],
)
def test_webhooks_go_to_listed_hosts_and_where_a_port_is_listed_only_to_that(url: str, is_it: bool) -> None:
    gateways = described(webhook_hosts="hooks.example.com, ops.example.com:8443")
    assert is_allowed(gateways, url) is is_it

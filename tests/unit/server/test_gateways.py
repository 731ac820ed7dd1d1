from datetime import timedelta
from typing import Any

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.gateways import Gateways, is_webhook_allowed, parse_gateways


def described(**given: Any) -> Gateways:
    empty = dict.fromkeys(("smtp_url", "smtp_from", "sms_url", "webhook_hosts", "webhook_secret", "commands"), "")
    return parse_gateways(**{**empty, "timeout": timedelta(seconds=1), "patience": timedelta(seconds=1), **given})


def test_no_gateway_is_set_up_by_default() -> None:
    gateways = described()
    assert (gateways.smtp_url, gateways.sms_url, gateways.webhook_hosts, gateways.commands) == ("", "", (), {})


def test_commands_have_names_and_arguments() -> None:
    commands = described(commands="page=/usr/bin/page --team 'ml ops'; ticket=/opt/ticket").commands
    assert commands == {"page": ["/usr/bin/page", "--team", "ml ops"], "ticket": ["/opt/ticket"]}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"smtp_url": "mail.example.com"}, "smtp_url is not a URL that starts with smtp://"),
        ({"smtp_url": "smtp://mail.example.com"}, "smtp_from"),
        ({"sms_url": "ftp://sms.example.com"}, "sms_url is not a URL"),
        ({"commands": "page=page"}, "full path"),
        ({"commands": "/usr/bin/page"}, "full path"),
        ({"commands": "page=/usr/bin/page 'x"}, "No closing quotation"),
    ],
)
def test_an_invalid_gateway_is_refused_when_the_yard_starts(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        described(**given)


def test_the_repr_of_gateways_has_no_secrets() -> None:
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
    assert is_webhook_allowed(gateways, url) is is_it

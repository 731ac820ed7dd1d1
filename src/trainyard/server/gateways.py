"""The gateways that an administrator has set up for rule actions: mail, text messages, webhooks and commands."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import urlsplit

from trainyard.foundation.errors import InvalidRequest

_SMTP_SCHEMES = ("smtp", "smtps")
_HTTP_SCHEMES = ("http", "https")


@dataclass(frozen=True, slots=True)
class Gateways:
    """The gateways of a yard. Empty means not set up.

    The user of a job can only choose an address, a listed host, or a command by name.
    """

    # smtp://user:password@host:port
    smtp_url: str = field(default="", repr=False)
    smtp_from: str = ""
    sms_url: str = field(default="", repr=False)
    # Each is a host, or host:port.
    webhook_hosts: tuple[str, ...] = ()
    webhook_secret: str = field(default="", repr=False)
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # The time limit of one try.
    timeout: timedelta = timedelta(seconds=10)
    # How long failed tries are repeated.
    patience: timedelta = timedelta(hours=1)


def parse_gateways(
    *,
    smtp_url: str,
    smtp_from: str,
    sms_url: str,
    webhook_hosts: str,
    webhook_secret: str,
    commands: str,
    timeout: timedelta,
    patience: timedelta,
) -> Gateways:
    """Parse the gateway settings. InvalidRequest names the invalid setting."""
    _require_url(smtp_url, _SMTP_SCHEMES, setting="smtp_url")
    _require_url(sms_url, _HTTP_SCHEMES, setting="sms_url")
    if smtp_url and "@" not in smtp_from:
        raise InvalidRequest(f'The setting smtp_from is "{smtp_from}"; set it to the sender address of mails.')
    hosts = tuple(host.strip().lower() for host in webhook_hosts.split(",") if host.strip())
    return Gateways(
        smtp_url,
        smtp_from,
        sms_url,
        hosts,
        webhook_secret,
        _parse_commands(commands),
        timeout=timeout,
        patience=patience,
    )


def is_webhook_allowed(gateways: Gateways, url: str) -> bool:
    """Whether webhooks may go to a URL: its host is listed, with its port if the list has one."""
    parts = urlsplit(url)
    if parts.scheme not in _HTTP_SCHEMES or not parts.hostname:
        return False
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return bool({parts.hostname, f"{parts.hostname}:{port}"} & set(gateways.webhook_hosts))


def _require_url(url: str, schemes: Sequence[str], *, setting: str) -> None:
    parts = urlsplit(url)
    if url and (parts.scheme not in schemes or not parts.hostname):
        raise InvalidRequest(f"The setting {setting} is not a URL that starts with {schemes[0]}:// or {schemes[1]}://.")


def _parse_commands(text: str) -> dict[str, list[str]]:
    """Parse `name=program argument …`, several separated by semicolons."""
    found: dict[str, list[str]] = {}
    for part in filter(str.strip, text.split(";")):
        name, _, line = part.strip().partition("=")
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise InvalidRequest(f'The setting action_commands has "{part.strip()}": {error}.') from error
        if not name.strip() or not words or not words[0].startswith("/"):
            raise InvalidRequest(
                f'The setting action_commands has "{part.strip()}"; write it like page=/usr/local/bin/page --team ml, '
                "with the full path of the program."
            )
        found[name.strip()] = words
    return found

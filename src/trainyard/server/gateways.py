"""Which ways out the administrator has given to the actions of rules: mail, messages, webhooks and commands."""

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
    """Empty is not set up. A job's user chooses an address, a host of the list, or a command by its name; no more."""

    smtp_url: str = field(default="", repr=False)  # smtp://user:password@host:port
    smtp_from: str = ""
    sms_url: str = field(default="", repr=False)
    webhook_hosts: tuple[str, ...] = ()  # host, or host:port
    webhook_secret: str = field(default="", repr=False)
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    timeout: timedelta = timedelta(seconds=10)  # of one try
    patience: timedelta = timedelta(hours=1)  # with a gateway that does not take it


def gateways_of(
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
    """The gateways that settings describe; InvalidRequest names the setting that is wrong."""
    _require_url(smtp_url, _SMTP_SCHEMES, setting="smtp_url")
    _require_url(sms_url, _HTTP_SCHEMES, setting="sms_url")
    if smtp_url and "@" not in smtp_from:
        raise InvalidRequest(f'The setting smtp_from is "{smtp_from}"; it needs the address that mails come from.')
    hosts = tuple(host.strip().lower() for host in webhook_hosts.split(",") if host.strip())
    return Gateways(
        smtp_url, smtp_from, sms_url, hosts, webhook_secret, _commands(commands), timeout=timeout, patience=patience
    )


def is_allowed(gateways: Gateways, url: str) -> bool:
    """Whether webhooks may go to a URL: its host is on the list, with the port where the list has one."""
    parts = urlsplit(url)
    if parts.scheme not in _HTTP_SCHEMES or not parts.hostname:
        return False
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return bool({parts.hostname, f"{parts.hostname}:{port}"} & set(gateways.webhook_hosts))


def _require_url(url: str, schemes: Sequence[str], *, setting: str) -> None:
    parts = urlsplit(url)
    if url and (parts.scheme not in schemes or not parts.hostname):
        raise InvalidRequest(f"The setting {setting} is no URL that begins with {schemes[0]}:// or {schemes[1]}://.")


def _commands(text: str) -> dict[str, list[str]]:
    """`name=program argument …`, several of them with semicolons between."""
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
                "with the whole path of the program."
            )
        found[name.strip()] = words
    return found

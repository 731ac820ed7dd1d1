"""Sends a message to a gateway: SMTP, HTTP, or a command that the administrator set up.

Each try has one time limit. `DeliveryFailed` says whether another try makes sense.
"""

import contextlib
import hashlib
import hmac
import http.client
import json
import os
import signal
import smtplib
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from urllib.parse import unquote, urlsplit

from trainyard import __version__
from trainyard.foundation.errors import TrainyardError
from trainyard.server.control.actions.messages import payload, short_text, subject, text
from trainyard.server.gateways import Gateways, is_webhook_allowed
from trainyard.server.jobs.rule_actions import RuleAction

MAX_ANSWER = 1000  # characters

_RETRYABLE_STATUSES = (408, 425, 429)
_SMTP_PORTS = {"smtp": 25, "smtps": 465}


class DeliveryFailed(TrainyardError):
    """A gateway did not accept a message. `is_final` means that it never will."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


def deliver(action: RuleAction, gateways: Gateways, *, now: datetime) -> str:
    """Send the message of an action; return the answer of the gateway. DeliveryFailed if it did not accept it."""
    return _GATEWAYS[action.name](action, gateways, now)[:MAX_ANSWER]


def is_message(name: str) -> bool:
    """Whether an action is a message to a gateway."""
    return name in _GATEWAYS


def _send_email(action: RuleAction, gateways: Gateways, now: datetime) -> str:
    _require_set_up(gateways.smtp_url, setting="smtp_url")
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = gateways.smtp_from, action.endpoint, subject(action)
    message["Date"] = format_datetime(now)
    # The same for each try, so that a mail server can drop duplicates.
    message["Message-ID"] = f"<{hashlib.sha256(action.key.encode()).hexdigest()[:32]}@trainyard>"
    message.set_content(text(action))
    seconds = gateways.timeout.total_seconds()
    try:
        with _open_smtp(gateways.smtp_url, seconds) as smtp:
            smtp.send_message(message)
    except smtplib.SMTPRecipientsRefused as error:
        (code, said), *_ = error.recipients.values()
        raise DeliveryFailed(
            f"The mail server refused {action.endpoint}: {code} {_decode(said)}", is_final=code >= 500
        ) from error
    except smtplib.SMTPResponseException as error:
        answered = f"The mail server answered {error.smtp_code} {_decode(error.smtp_error)}"
        raise DeliveryFailed(answered, is_final=error.smtp_code >= 500) from error
    except (OSError, smtplib.SMTPException) as error:
        raise DeliveryFailed(f"The mail server could not be reached: {error}") from error
    return f"The mail server accepted the message for {action.endpoint}."


@contextlib.contextmanager
def _open_smtp(url: str, seconds: float) -> Iterator[smtplib.SMTP]:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _SMTP_PORTS[parts.scheme]
    secure = ssl.create_default_context()
    smtp = (
        smtplib.SMTP_SSL(host, port, timeout=seconds, context=secure)
        if parts.scheme == "smtps"
        else smtplib.SMTP(host, port, timeout=seconds)
    )
    with smtp, _cut_after(seconds, lambda: smtp.sock):
        smtp.ehlo()
        if parts.scheme == "smtp" and smtp.has_extn("starttls"):
            smtp.starttls(context=secure)
        if parts.username:
            smtp.login(unquote(parts.username), unquote(parts.password or ""))
        yield smtp


def _send_sms(action: RuleAction, gateways: Gateways, now: datetime) -> str:
    _require_set_up(gateways.sms_url, setting="sms_url")
    body = json.dumps({"to": action.endpoint, "text": short_text(action), "key": action.key}).encode()
    return _post(gateways.sms_url, body, action, gateways=gateways, now=now)


def _send_webhook(action: RuleAction, gateways: Gateways, now: datetime) -> str:
    _require_allowed(action, gateways)
    return _post(action.endpoint, payload(action), action, gateways=gateways, now=now)


def _send_slack(action: RuleAction, gateways: Gateways, now: datetime) -> str:
    _require_allowed(action, gateways)
    return _post(action.endpoint, json.dumps({"text": text(action)}).encode(), action, gateways=gateways, now=now)


def _require_set_up(url: str, *, setting: str) -> None:
    if not url:
        raise DeliveryFailed(f"The setting {setting} was removed.", is_final=True)


def _require_allowed(action: RuleAction, gateways: Gateways) -> None:
    """Check the host again: the settings may have changed since the job was created."""
    if not is_webhook_allowed(gateways, action.endpoint):
        raise DeliveryFailed("Its host is no longer in the setting webhook_hosts.", is_final=True)


def _post(url: str, body: bytes, action: RuleAction, *, gateways: Gateways, now: datetime) -> str:
    """Send a request; return the status and the beginning of the answer.

    Redirects are not followed, because they could lead anywhere.
    """
    parts, seconds = urlsplit(url), gateways.timeout.total_seconds()
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=seconds)
    path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    try:
        connection.connect()
        with _cut_after(seconds, lambda: connection.sock):
            connection.request("POST", path, body, _headers(body, action, gateways=gateways, now=now))
            with connection.getresponse() as answer:
                said = answer.read(MAX_ANSWER).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise DeliveryFailed(f"{parts.hostname} could not be reached: {error or type(error).__name__}") from error
    finally:
        connection.close()
    result = f"{parts.hostname} answered {answer.status} {answer.reason} {said}".strip()
    if not 200 <= answer.status < 300:
        raise DeliveryFailed(result, is_final=300 <= answer.status < 500 and answer.status not in _RETRYABLE_STATUSES)
    return result


def _headers(body: bytes, action: RuleAction, *, gateways: Gateways, now: datetime) -> Mapping[str, str]:
    stamp = str(int(now.timestamp()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"trainyard/{__version__}",
        "Idempotency-Key": action.key,
        "X-Trainyard-Timestamp": stamp,
    }
    if gateways.webhook_secret:
        signed = hmac.new(gateways.webhook_secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
        headers["X-Trainyard-Signature"] = f"sha256={signed}"
    return headers


def _run_command(action: RuleAction, gateways: Gateways, _now: datetime) -> str:
    """Run a command; return what it printed.

    Its arguments come from the administrator. The user of the job has influence only on its input.
    """
    words = gateways.commands.get(action.endpoint)
    if words is None:
        raise DeliveryFailed(f'The setting action_commands no longer has "{action.endpoint}".', is_final=True)
    environment = {"PATH": os.defpath, "TRAINYARD_ACTION_KEY": action.key}
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise DeliveryFailed(f"{words[0]} cannot be run: {error.strerror}") from error
    with process:
        try:
            printed, _ = process.communicate(payload(action), timeout=gateways.timeout.total_seconds())
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            raise DeliveryFailed(f"{words[0]} took longer than {gateways.timeout.total_seconds():g} s.") from error
    said = printed.decode(errors="replace").strip()
    if process.returncode:
        raise DeliveryFailed(f"{words[0]} ended with {process.returncode}: {said}"[:MAX_ANSWER])
    return f"{words[0]} ended with 0: {said}"


@contextlib.contextmanager
def _cut_after(seconds: float, current: Callable[[], socket.socket | None]) -> Iterator[None]:
    """Close a connection after a time, however slowly the other side keeps sending."""

    def cut() -> None:
        with contextlib.suppress(OSError):
            if (open_socket := current()) is not None:
                open_socket.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _decode(said: bytes | str) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said


_GATEWAYS: Mapping[str, Callable[[RuleAction, Gateways, datetime], str]] = {
    "email": _send_email,
    "sms": _send_sms,
    "webhook": _send_webhook,
    "slack": _send_slack,
    "command": _run_command,
}

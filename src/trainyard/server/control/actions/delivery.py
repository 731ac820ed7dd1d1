"""Hands a message to a gateway: SMTP, HTTP, or a command of the administrator's.

Every try has one limit of time for all of it. `NotTaken` tells whether another try makes sense.
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
from trainyard.server.actions import RuleAction
from trainyard.server.control.actions.messages import payload, short_text, subject, text
from trainyard.server.gateways import Gateways, is_allowed

MAX_ANSWER = 1000  # characters of what came back that are kept

_BUSY = (408, 425, 429)  # of the answers of 400 and more, those that may change
_SMTP_PORTS = {"smtp": 25, "smtps": 465}


class NotTaken(TrainyardError):
    """A gateway did not take a message; `is_final` where it never will."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


def deliver(action: RuleAction, gateways: Gateways, *, now: datetime) -> str:
    """What the gateway of an action answered; NotTaken when it did not take it."""
    return _WAYS[action.name](action, gateways, now)[:MAX_ANSWER]


def is_delivered(name: str) -> bool:
    """Whether an action is a message to a gateway."""
    return name in _WAYS


def _email(action: RuleAction, gateways: Gateways, now: datetime) -> str:
    _require_set_up(gateways.smtp_url, setting="smtp_url")
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = gateways.smtp_from, action.endpoint, subject(action)
    message["Date"] = format_datetime(now)
    message["Message-ID"] = f"<{hashlib.sha256(action.key.encode()).hexdigest()[:32]}@trainyard>"  # the same each try
    message.set_content(text(action))
    seconds = gateways.timeout.total_seconds()
    try:
        with _smtp(gateways.smtp_url, seconds) as smtp:
            smtp.send_message(message)
    except smtplib.SMTPRecipientsRefused as error:
        (code, said), *_ = error.recipients.values()
        raise NotTaken(
            f"The mail server refused {action.endpoint}: {code} {_text(said)}", is_final=code >= 500
        ) from error
    except smtplib.SMTPResponseException as error:
        told = f"The mail server answered {error.smtp_code} {_text(error.smtp_error)}"
        raise NotTaken(told, is_final=error.smtp_code >= 500) from error
    except (OSError, smtplib.SMTPException) as error:
        raise NotTaken(f"The mail server could not be reached: {error}") from error
    return f"The mail server took it for {action.endpoint}."


@contextlib.contextmanager
def _smtp(url: str, seconds: float) -> Iterator[smtplib.SMTP]:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _SMTP_PORTS[parts.scheme]
    secure = ssl.create_default_context()
    smtp = (
        smtplib.SMTP_SSL(host, port, timeout=seconds, context=secure)
        if parts.scheme == "smtps"
        else smtplib.SMTP(host, port, timeout=seconds)
    )
    with smtp, _limited(seconds, lambda: smtp.sock):
        smtp.ehlo()
        if parts.scheme == "smtp" and smtp.has_extn("starttls"):
            smtp.starttls(context=secure)
        if parts.username:
            smtp.login(unquote(parts.username), unquote(parts.password or ""))
        yield smtp


def _sms(action: RuleAction, gateways: Gateways, now: datetime) -> str:
    _require_set_up(gateways.sms_url, setting="sms_url")
    body = json.dumps({"to": action.endpoint, "text": short_text(action), "key": action.key}).encode()
    return _post(gateways.sms_url, body, action, gateways=gateways, now=now)


def _webhook(action: RuleAction, gateways: Gateways, now: datetime) -> str:
    _require_allowed(action, gateways)
    return _post(action.endpoint, payload(action), action, gateways=gateways, now=now)


def _slack(action: RuleAction, gateways: Gateways, now: datetime) -> str:
    _require_allowed(action, gateways)
    return _post(action.endpoint, json.dumps({"text": text(action)}).encode(), action, gateways=gateways, now=now)


def _require_set_up(url: str, *, setting: str) -> None:
    if not url:
        raise NotTaken(f"The setting {setting} has been taken away.", is_final=True)


def _require_allowed(action: RuleAction, gateways: Gateways) -> None:
    """The settings may have changed since the job was created."""
    if not is_allowed(gateways, action.endpoint):
        raise NotTaken("Its host is no longer in the setting webhook_hosts.", is_final=True)


def _post(url: str, body: bytes, action: RuleAction, *, gateways: Gateways, now: datetime) -> str:
    """The status and the beginning of the answer. Redirects are not followed: they could lead anywhere."""
    parts, seconds = urlsplit(url), gateways.timeout.total_seconds()
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=seconds)
    path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    try:
        connection.connect()
        with _limited(seconds, lambda: connection.sock):
            connection.request("POST", path, body, _headers(body, action, gateways=gateways, now=now))
            with connection.getresponse() as answer:
                said = answer.read(MAX_ANSWER).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise NotTaken(f"{parts.hostname} could not be reached: {error or type(error).__name__}") from error
    finally:
        connection.close()
    told = f"{parts.hostname} answered {answer.status} {answer.reason} {said}".strip()
    if not 200 <= answer.status < 300:
        raise NotTaken(told, is_final=300 <= answer.status < 500 and answer.status not in _BUSY)
    return told


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


def _command(action: RuleAction, gateways: Gateways, _now: datetime) -> str:
    """What the command printed. Its words are the administrator's; the job's user has only a part in its input."""
    words = gateways.commands.get(action.endpoint)
    if words is None:
        raise NotTaken(f'The setting action_commands no longer has "{action.endpoint}".', is_final=True)
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
        raise NotTaken(f"{words[0]} cannot be run: {error.strerror}") from error
    with process:
        try:
            printed, _ = process.communicate(payload(action), timeout=gateways.timeout.total_seconds())
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            raise NotTaken(f"{words[0]} took longer than {gateways.timeout.total_seconds():g} s.") from error
    said = printed.decode(errors="replace").strip()
    if process.returncode:
        raise NotTaken(f"{words[0]} ended with {process.returncode}: {said}"[:MAX_ANSWER])
    return f"{words[0]} ended with 0: {said}"


@contextlib.contextmanager
def _limited(seconds: float, current: Callable[[], socket.socket | None]) -> Iterator[None]:
    """Cut a connection after so long, however slowly its other side goes on."""

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


def _text(said: bytes | str) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said


_WAYS: Mapping[str, Callable[[RuleAction, Gateways, datetime], str]] = {
    "email": _email,
    "sms": _sms,
    "webhook": _webhook,
    "slack": _slack,
    "command": _command,
}

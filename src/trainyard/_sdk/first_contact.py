"""The first contact with a yard over TLS: what it says of itself, and whether its certificate can be trusted.

A yard signs its certificate with an authority of its own, which no machine trusts yet. A client fetches the authority
without trust, compares its fingerprint with the one that the yard printed, and trusts only that authority from then on.
"""

import contextlib
import email.utils
import hashlib
import http.client
import importlib.util
import json
import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from trainyard.foundation.errors import InvalidRequest, Unavailable

DEFAULT_HTTPS_PORT = 4781

_HEALTH, _AUTHORITY = "/_trainyard/health", "/_trainyard/ca.pem"
_TIMEOUT_S = 10.0
_MAX_ANSWER_BYTES = 64 * 1024
_HOSTNAME_MISMATCH, _IP_MISMATCH = 62, 64  # OpenSSL's codes of a failed verification


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a yard says to anyone.

    `authority` is the certificate of its authority as PEM. `clock_ahead` is how far this machine's clock is ahead.
    """

    version: str
    region: str
    authority: bytes
    clock_ahead: timedelta


def yard_url(given: str) -> str:
    """Return the address of a yard as a URL. A host alone means https and the port that yards use."""
    names_scheme = "://" in given
    text = given.strip().removesuffix("/")
    parts = urlsplit(text if names_scheme else f"https://{text}")
    try:
        is_valid = parts.scheme in ("http", "https") and parts.hostname and not (parts.path or parts.query)
        has_port = parts.port is not None
    except ValueError:
        is_valid = has_port = False
    if not is_valid:
        raise InvalidRequest(f'"{given}" is not the address of a yard; write it like https://10.0.0.1:4781.')
    return parts.geturl() if names_scheme or has_port else f"{parts.geturl()}:{DEFAULT_HTTPS_PORT}"


def greet(url: str, *, now: datetime | None = None) -> Greeting:
    """Ask a yard who it is, without any trust. Unavailable says why none answers there."""
    with _open(url, _unverified_context()) as connection:
        answer = _get(connection, _HEALTH, url)
        try:
            facts = json.loads(answer.body)
            version, region = str(facts["version"]), str(facts.get("region", ""))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _no_yard(url) from error
        authority = _get(connection, _AUTHORITY, url).body if urlsplit(url).scheme == "https" else b""
    ahead = (now or datetime.now(UTC)) - answer.date if answer.date else timedelta()
    return Greeting(version, region, authority, ahead)


def is_trusted(url: str, authority: bytes | None = None) -> bool:
    """Whether the certificate of an address is valid, by this authority alone or by those of this machine.

    Unavailable if it is valid but for another host, or not at this time.
    """
    try:
        context = ssl.create_default_context(cadata=authority.decode("ascii") if authority is not None else None)
    except (ssl.SSLError, UnicodeDecodeError):
        return False
    address = urlsplit(url)
    try:
        with (
            socket.create_connection((address.hostname, address.port or 443), timeout=_TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=address.hostname),
        ):
            return True
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in (_HOSTNAME_MISMATCH, _IP_MISMATCH):
            raise Unavailable(
                f"The certificate of {url} is for other host names than {address.hostname}. Log in with a name or "
                "address that `trainyard up` printed, or have the setting `hostnames` of the yard name this one."
            ) from error
        return False
    except OSError as error:
        raise _unreachable(url, error) from error


def fingerprint(certificate: bytes) -> str:
    """Return the SHA-256 fingerprint of a certificate in PEM, as OpenSSL and browsers write it."""
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.decode("ascii"))).hexdigest().upper()
    return ":".join(digest[place : place + 2] for place in range(0, len(digest), 2))


def is_fingerprint(given: str, certificate: bytes) -> bool:
    """Whether a text is the fingerprint of a certificate, with or without colons and "SHA256"."""
    return _hex_digits(given) == _hex_digits(fingerprint(certificate))


def bundle_with(authority: bytes) -> bytes:
    """Return an authority together with those that AWS clients trust by default, as one PEM file."""
    spec = importlib.util.find_spec("botocore")
    assert spec is not None, "botocore is a dependency"
    assert spec.origin is not None, "botocore is a package with a file"
    return authority + Path(spec.origin).with_name("cacert.pem").read_bytes()


@dataclass(frozen=True, slots=True)
class _Answer:
    body: bytes
    date: datetime | None


def _unverified_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@contextlib.contextmanager
def _open(url: str, context: ssl.SSLContext) -> Iterator[http.client.HTTPConnection]:
    address = urlsplit(url)
    host = address.hostname or ""
    connection = (
        http.client.HTTPSConnection(host, address.port, timeout=_TIMEOUT_S, context=context)
        if address.scheme == "https"
        else http.client.HTTPConnection(host, address.port, timeout=_TIMEOUT_S)
    )
    try:
        yield connection
    except http.client.HTTPException as error:
        raise _no_yard(url) from error
    except OSError as error:
        raise _unreachable(url, error) from error
    finally:
        connection.close()


def _get(connection: http.client.HTTPConnection, path: str, url: str) -> _Answer:
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read(_MAX_ANSWER_BYTES)
    if response.status != http.HTTPStatus.OK:
        raise _no_yard(url)
    return _Answer(body, _date(response.getheader("date")))


def _date(text: str | None) -> datetime | None:
    try:
        return email.utils.parsedate_to_datetime(text or "")
    except ValueError:
        return None


def _unreachable(url: str, error: OSError) -> Unavailable:
    host = urlsplit(url).hostname
    if isinstance(error, socket.gaierror):
        return Unavailable(f'There is no host "{host}": {error.strerror}.')
    if isinstance(error, ConnectionRefusedError):
        return Unavailable(
            f"Nothing listens at {url}. On the machine of the yard, `trainyard up --host 0.0.0.0` opens it to others; "
            "`trainyard status` there shows its addresses."
        )
    if isinstance(error, TimeoutError):
        return Unavailable(f"{url} did not answer within {_TIMEOUT_S:g} s; a firewall may block the port.")
    if isinstance(error, ssl.SSLError):
        return Unavailable(f"{url} does not speak TLS. If this is the http port of a yard, https is the next one.")
    return Unavailable(f"{url} cannot be reached: {error.strerror or error}.")


def _no_yard(url: str) -> Unavailable:
    return Unavailable(f"What answers at {url} is not a yard of Trainyard, or one that is too old to log in to.")


def _hex_digits(text: str) -> str:
    return re.sub(r"[^0-9a-f]", "", re.sub(r"(?i)sha-?256", "", text).lower())

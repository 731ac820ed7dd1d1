"""The yard's own certificate authority, and the server certificate that it signs.

The authority is created once and is valid for ten years, so clients keep trusting it. The server certificate is renewed
before it expires, or when the yard gets other host names. `bundle.pem` contains the yard's authority and those that
this machine trusts anyway, because AWS_CA_BUNDLE replaces the default ones and other https calls must still work.

Importing cryptography takes 60 ms and some memory. So a note beside the files records their names, renewal time and
hash, and only a start that has to create a certificate imports it.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import ipaddress
import json
import os
import socket
import ssl
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.foundation.errors import Corrupt
from trainyard.foundation.files import replace_file
from trainyard.foundation.home import Home

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

AUTHORITY_LIFE = timedelta(days=3650)
# The longest lifetime that strict clients accept.
SERVER_LIFE = timedelta(days=397)
RENEW_BEFORE = timedelta(days=30)
# A client's clock may run behind.
SKEW = timedelta(hours=1)

# With virtual-host addressing, a bucket is one label before the host, which a wildcard matches. OpenSSL requires two
# dots after the star, so `s3.localhost` is the name that works everywhere.
ALWAYS = ("localhost", "127.0.0.1", "::1", "*.localhost", "s3.localhost", "*.s3.localhost")

# Addresses to bind to, but not to connect to.
_UNSPECIFIED = frozenset({"", "0.0.0.0", "::"})
_SIOCGIFADDR = 0x8915
_SYSTEM_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """The files that a TLS listener loads."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class CertificateExpiry:
    """When the certificates of a home expire."""

    authority: datetime
    server: datetime


@dataclass(frozen=True, slots=True)
class _CertificateFiles:
    """The certificate and key files of the authority and the server, and the note about them."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def authority_key(self) -> Path:
        return self.folder / "ca-key.pem"

    @property
    def server(self) -> Path:
        return self.folder / "server.pem"

    @property
    def server_key(self) -> Path:
        return self.folder / "server-key.pem"

    @property
    def note(self) -> Path:
        return self.folder / "issued.json"

    def digest(self) -> str:
        files = (self.authority, self.authority_key, self.server, self.server_key)
        return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def ensure_certificates(home: Home, hosts: Sequence[str], now: datetime) -> ServerCertificate:
    """Return a certificate that is valid for `hosts` and this machine's own names for at least 30 more days.

    Corrupt when a file of the authority is lost or damaged. It is never replaced silently, because clients trust it.
    """
    names = _host_names(hosts)
    files = _CertificateFiles(home.certificates)
    if not _is_valid(files, names, now=now):
        _renew(files, names, now=now)
    _write_bundle(home)
    return ServerCertificate(files.server, files.server_key)


def certificate_expiry(home: Home) -> CertificateExpiry:
    """Read the expiry from the certificates. Corrupt when they cannot be read."""
    files = _CertificateFiles(home.certificates)
    return CertificateExpiry(
        _load_certificate(files.authority).not_valid_after_utc, _load_certificate(files.server).not_valid_after_utc
    )


def _host_names(hosts: Sequence[str]) -> list[str]:
    names = {*ALWAYS}
    for host in (host.strip("[]").lower() for host in hosts):
        if host in _UNSPECIFIED:
            names |= _own_addresses()
        elif _is_address(host):
            names.add(host)
        else:
            names |= {host, f"*.{host}"}
    return sorted(names)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _own_addresses() -> set[str]:
    """Return the host name and IPv4 addresses of this machine, read from the kernel. A name server might not answer."""
    names = {socket.gethostname().lower()}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, interface in socket.if_nameindex():
            request = struct.pack("256s", interface.encode())
            # An interface may have no address.
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, request)
                names.add(socket.inet_ntoa(answer[20:24]))
    return names


def _is_valid(files: _CertificateFiles, names: Sequence[str], *, now: datetime) -> bool:
    try:
        note = json.loads(files.note.read_bytes())
        renew_at = datetime.fromisoformat(note["renew_at"])
        return bool(note["digest"] == files.digest() and set(note["names"]) >= set(names) and now < renew_at)
    except (OSError, ValueError, KeyError, TypeError):
        # The renewal finds and reports whatever is wrong with the note or the files.
        return False


def _renew(files: _CertificateFiles, names: Sequence[str], *, now: datetime) -> None:
    authority = _load_authority(files, now=now)
    renew_at = _issue(files, authority, names=names, now=now) - RENEW_BEFORE
    note = {"names": list(names), "renew_at": renew_at.isoformat(), "digest": files.digest()}
    replace_file(files.note, json.dumps(note, indent=2).encode() + b"\n")


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: "x509.Certificate"
    key: "EllipticCurvePrivateKey"


def _load_authority(files: _CertificateFiles, *, now: datetime) -> _Authority:
    if not files.authority.exists() and not files.note.exists():
        return _create_authority(files, now=now)
    certificate = _load_certificate(files.authority)
    if certificate.not_valid_after_utc - RENEW_BEFORE - SERVER_LIFE < now:
        return _create_authority(files, now=now)
    key = _load_key(files.authority_key)
    if certificate.public_key() != key.public_key():
        raise Corrupt(f"{files.authority_key} is not the key of {files.authority}. {_REMEDY}")
    return _Authority(certificate, key)


def _create_authority(files: _CertificateFiles, *, now: datetime) -> _Authority:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"Trainyard authority {os.urandom(4).hex()}")
    builder = (
        _builder(name, name, key=key, issuer_key=key)
        .not_valid_before(now - SKEW)
        .not_valid_after(now + AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
    )
    certificate = _sign(builder, key)
    # Write the key first: after a crash, a certificate without its key would look like a damaged authority.
    replace_file(files.authority_key, _key_pem(key))
    replace_file(files.authority, _pem(certificate))
    return _Authority(certificate, key)


def _issue(files: _CertificateFiles, authority: _Authority, *, names: Sequence[str], now: datetime) -> datetime:
    """Create the server certificate, and return when it expires."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = ec.generate_private_key(ec.SECP256R1())
    until = now + SERVER_LIFE
    builder = (
        _builder(_name("Trainyard"), authority.certificate.subject, key=key, issuer_key=authority.key)
        .not_valid_before(now - SKEW)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
    )
    replace_file(files.server_key, _key_pem(key))
    replace_file(files.server, _pem(_sign(builder, authority.key)))
    return until


def _builder(
    subject: "x509.Name", issuer: "x509.Name", *, key: "EllipticCurvePrivateKey", issuer_key: "EllipticCurvePrivateKey"
) -> "x509.CertificateBuilder":
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )


def _sign(builder: "x509.CertificateBuilder", key: "EllipticCurvePrivateKey") -> "x509.Certificate":
    from cryptography.hazmat.primitives.hashes import SHA256

    return builder.sign(key, SHA256())


def _key_usage(*, signs_certificates: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> "x509.GeneralName":
    from cryptography import x509

    return x509.IPAddress(ipaddress.ip_address(host)) if _is_address(host) else x509.DNSName(host)


def _pem(certificate: "x509.Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


_REMEDY = (
    "Restore the folder from a backup, or remove all of it: the next start creates a new authority, which clients must "
    "trust again."
)


def _load_certificate(file: Path) -> "x509.Certificate":
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(file.read_bytes())
    except (OSError, ValueError) as error:
        raise Corrupt(f"{file} cannot be read: {error}. {_REMEDY}") from error


def _load_key(file: Path) -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(file.read_bytes(), password=None)
    except (OSError, ValueError) as error:
        raise Corrupt(f"{file} cannot be read: {error}. {_REMEDY}") from error
    if not isinstance(key, EllipticCurvePrivateKey):
        raise Corrupt(f"{file} does not contain an elliptic-curve key. {_REMEDY}")
    return key


def _write_bundle(home: Home) -> None:
    bundle = home.ca_file.read_bytes() + _system_authorities()
    if not home.ca_bundle.exists() or home.ca_bundle.read_bytes() != bundle:
        replace_file(home.ca_bundle, bundle)


def _system_authorities() -> bytes:
    """Return the authorities that this machine trusts: OpenSSL's, the distribution's, or else botocore's."""
    botocore = importlib.util.find_spec("botocore")
    beside = str(Path(botocore.origin).with_name("cacert.pem")) if botocore and botocore.origin else ""
    for candidate in (ssl.get_default_verify_paths().cafile, *_SYSTEM_BUNDLES, beside):
        if candidate and Path(candidate).is_file():
            return Path(candidate).read_bytes()
    return b""

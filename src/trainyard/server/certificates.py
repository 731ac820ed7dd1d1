"""The yard's own certificate authority, and the server certificate it signs.

The authority is made once and lives ten years, so clients that trust it go on doing so; the server certificate is made
anew when it nears its end or when the yard answers under other names. `bundle.pem` holds the yard's authority and
those this machine trusts anyway, because AWS_CA_BUNDLE replaces the usual ones and other https calls must go on.

cryptography takes 60 ms and some memory to import. So a note beside the files says what they are good for and what
their hashes are, and only a start that has to make a certificate pays for it.
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
SERVER_LIFE = timedelta(days=397)  # the longest that strict clients take
RENEW_BEFORE = timedelta(days=30)
SKEW = timedelta(hours=1)  # a client's clock may run behind

# With virtual-host addressing a bucket is one label before the host, which is what a wildcard stands for.
# OpenSSL wants two dots after the star, so `s3.localhost` is the name that works everywhere.
ALWAYS = ("localhost", "127.0.0.1", "::1", "*.localhost", "s3.localhost", "*.s3.localhost")

_UNSPECIFIED = frozenset({"", "0.0.0.0", "::"})  # one binds to these, but nobody connects to them
_SIOCGIFADDR = 0x8915
_SYSTEM_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """What a TLS listener loads."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Expiry:
    """When the certificates of a home end."""

    authority: datetime
    server: datetime


@dataclass(frozen=True, slots=True)
class _Files:
    """The four files of the two pairs, and the note on them."""

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
    """A certificate that is good for `hosts` and this machine's own names, for at least the next 30 days.

    Corrupt when a file of the authority is lost or damaged: it is not replaced silently, since clients trust it.
    """
    names = _names(hosts)
    files = _Files(home.certificates)
    if not _is_good(files, names, now=now):
        _renew(files, names, now=now)
    _write_bundle(home)
    return ServerCertificate(files.server, files.server_key)


def certificate_expiry(home: Home) -> Expiry:
    """Read from the certificates themselves; Corrupt when they cannot be."""
    files = _Files(home.certificates)
    return Expiry(
        _load_certificate(files.authority).not_valid_after_utc, _load_certificate(files.server).not_valid_after_utc
    )


def _names(hosts: Sequence[str]) -> list[str]:
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
    """The name and the IPv4 addresses of this machine, asked of the kernel: a name server might not answer."""
    names = {socket.gethostname().lower()}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, interface in socket.if_nameindex():
            request = struct.pack("256s", interface.encode())
            with contextlib.suppress(OSError):  # an interface without an address
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, request)
                names.add(socket.inet_ntoa(answer[20:24]))
    return names


def _is_good(files: _Files, names: Sequence[str], *, now: datetime) -> bool:
    try:
        note = json.loads(files.note.read_bytes())
        renew_at = datetime.fromisoformat(note["renew_at"])
        return bool(note["digest"] == files.digest() and set(note["names"]) >= set(names) and now < renew_at)
    except (OSError, ValueError, KeyError, TypeError):
        return False  # whatever is wrong with the note or the files, the slow way finds and says it


def _renew(files: _Files, names: Sequence[str], *, now: datetime) -> None:
    authority = _authority(files, now=now)
    renew_at = _issue(files, authority, names=names, now=now) - RENEW_BEFORE
    note = {"names": list(names), "renew_at": renew_at.isoformat(), "digest": files.digest()}
    replace_file(files.note, json.dumps(note, indent=2).encode() + b"\n")


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: "x509.Certificate"
    key: "EllipticCurvePrivateKey"


def _authority(files: _Files, *, now: datetime) -> _Authority:
    if not files.authority.exists() and not files.note.exists():
        return _found_authority(files, now=now)
    certificate = _load_certificate(files.authority)
    if certificate.not_valid_after_utc - RENEW_BEFORE - SERVER_LIFE < now:
        return _found_authority(files, now=now)
    key = _load_key(files.authority_key)
    if certificate.public_key() != key.public_key():
        raise Corrupt(f"{files.authority_key} is not the key of {files.authority}. {_REMEDY}")
    return _Authority(certificate, key)


def _found_authority(files: _Files, *, now: datetime) -> _Authority:
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
    # The key goes first: a certificate without its key would count as a damaged authority after a crash in between.
    replace_file(files.authority_key, _key_pem(key))
    replace_file(files.authority, _pem(certificate))
    return _Authority(certificate, key)


def _issue(files: _Files, authority: _Authority, *, names: Sequence[str], now: datetime) -> datetime:
    """Make the server certificate, and tell when it ends."""
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
    "Restore the folder from a backup, or remove it whole: the next start makes a new authority to be trusted anew."
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
        raise Corrupt(f"{file} holds no elliptic-curve key. {_REMEDY}")
    return key


def _write_bundle(home: Home) -> None:
    bundle = home.ca_file.read_bytes() + _trusted_here()
    if not home.ca_bundle.exists() or home.ca_bundle.read_bytes() != bundle:
        replace_file(home.ca_bundle, bundle)


def _trusted_here() -> bytes:
    """The authorities this machine trusts: OpenSSL's, the distribution's, or else those that came with botocore."""
    botocore = importlib.util.find_spec("botocore")
    beside = str(Path(botocore.origin).with_name("cacert.pem")) if botocore and botocore.origin else ""
    for candidate in (ssl.get_default_verify_paths().cafile, *_SYSTEM_BUNDLES, beside):
        if candidate and Path(candidate).is_file():
            return Path(candidate).read_bytes()
    return b""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from trainyard.foundation.errors import Corrupt
from trainyard.foundation.home import Home
from trainyard.server.http.certificates import (
    RENEW_BEFORE,
    SERVER_LIFE,
    ServerCertificate,
    certificate_expiry,
    ensure_certificates,
)

# A TLS handshake reads the real clock.
NOW = datetime.now(UTC)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.certificates.mkdir()
    return home


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "s3.localhost", "bucket.s3.localhost"])
def test_a_strict_client_that_trusts_the_authority_completes_a_handshake(home: Home, host: str) -> None:
    server = ensure_certificates(home, [], NOW)

    shake_hands(server, trusting=home.ca_file, host=host)


def test_a_client_that_trusts_the_bundle_completes_a_handshake(home: Home) -> None:
    server = ensure_certificates(home, [], NOW)

    shake_hands(server, trusting=home.ca_bundle, host="localhost")


def test_the_bundle_also_contains_the_authorities_that_this_machine_trusts(home: Home) -> None:
    ensure_certificates(home, [], NOW)

    own, usual = home.ca_file.read_bytes(), home.ca_bundle.read_bytes()
    assert usual.startswith(own)
    assert usual.count(b"-----BEGIN CERTIFICATE-----") > 50


def test_a_client_that_does_not_trust_the_authority_refuses(home: Home, tmp_path: Path) -> None:
    server = ensure_certificates(home, [], NOW)
    stranger = Home(tmp_path / "stranger")
    stranger.certificates.mkdir(parents=True)
    ensure_certificates(stranger, [], NOW)

    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        shake_hands(server, trusting=stranger.ca_file, host="localhost")


def test_an_unknown_host_name_is_refused(home: Home) -> None:
    server = ensure_certificates(home, ["yard.example.com"], NOW)

    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(server, trusting=home.ca_file, host="other.example.com")


@pytest.mark.parametrize("host", ["yard.example.com", "bucket.yard.example.com", "192.0.2.7"])
def test_further_hosts_and_their_buckets_are_in_the_certificate(home: Home, host: str) -> None:
    server = ensure_certificates(home, ["yard.example.com", "192.0.2.7"], NOW)

    shake_hands(server, trusting=home.ca_file, host=host)


def test_binding_to_every_address_adds_the_addresses_of_this_machine(home: Home) -> None:
    ensure_certificates(home, ["0.0.0.0"], NOW)

    note = (home.certificates / "issued.json").read_text()
    assert '"127.0.0.1"' in note
    assert '"0.0.0.0"' not in note


def test_a_second_start_changes_no_file(home: Home) -> None:
    ensure_certificates(home, [], NOW)
    before = contents(home)

    ensure_certificates(home, [], NOW + timedelta(days=100))

    assert contents(home) == before


def test_a_certificate_near_its_expiry_is_renewed_and_the_authority_stays(home: Home) -> None:
    server = ensure_certificates(home, [], NOW - SERVER_LIFE + RENEW_BEFORE)
    authority, old = home.ca_file.read_bytes(), server.certificate.read_bytes()

    server = ensure_certificates(home, [], NOW)

    assert home.ca_file.read_bytes() == authority
    assert server.certificate.read_bytes() != old
    shake_hands(server, trusting=home.ca_file, host="localhost")


def test_new_hosts_get_a_new_certificate_from_the_same_authority(home: Home) -> None:
    ensure_certificates(home, [], NOW)
    authority = home.ca_file.read_bytes()

    server = ensure_certificates(home, ["yard.example.com"], NOW)

    assert home.ca_file.read_bytes() == authority
    shake_hands(server, trusting=home.ca_file, host="yard.example.com")


def test_an_authority_that_could_not_outlive_a_new_certificate_is_replaced(home: Home) -> None:
    ensure_certificates(home, [], NOW - timedelta(days=3640))

    server = ensure_certificates(home, [], NOW)

    shake_hands(server, trusting=home.ca_file, host="localhost")
    assert certificate_expiry(home).authority > NOW + timedelta(days=3000)


def test_the_server_certificate_of_an_interrupted_start_is_created_again(home: Home) -> None:
    server = ensure_certificates(home, [], NOW)
    server.certificate.unlink()

    shake_hands(ensure_certificates(home, [], NOW), trusting=home.ca_file, host="localhost")


@pytest.mark.parametrize("name", ["ca.pem", "ca-key.pem"])
@pytest.mark.parametrize("damage", ["lost", "cut"])
def test_a_damaged_authority_is_reported_and_never_replaced_silently(home: Home, name: str, damage: str) -> None:
    ensure_certificates(home, [], NOW)
    file = home.certificates / name
    if damage == "lost":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:60])
    before = contents(home)

    with pytest.raises(Corrupt, match=f"{name} cannot be read.*Restore"):
        ensure_certificates(home, [], NOW)
    assert contents(home) == before


def test_the_key_of_another_authority_is_recognised(home: Home, tmp_path: Path) -> None:
    stranger = Home(tmp_path / "stranger")
    stranger.certificates.mkdir(parents=True)
    ensure_certificates(stranger, [], NOW)
    ensure_certificates(home, [], NOW)
    (home.certificates / "ca-key.pem").write_bytes((stranger.certificates / "ca-key.pem").read_bytes())

    with pytest.raises(Corrupt, match="is not the key of"):
        ensure_certificates(home, [], NOW)


def test_only_the_owner_can_read_keys(home: Home) -> None:
    ensure_certificates(home, [], NOW)

    assert {file.stat().st_mode & 0o777 for file in home.certificates.iterdir()} == {0o600}


def test_the_expiry_is_read_from_the_certificates(home: Home) -> None:
    ensure_certificates(home, [], NOW)

    expiry = certificate_expiry(home)
    assert abs(expiry.server - (NOW + SERVER_LIFE)) < timedelta(seconds=2)
    assert abs(expiry.authority - (NOW + timedelta(days=3650))) < timedelta(seconds=2)


def shake_hands(server: ServerCertificate, *, trusting: Path, host: str) -> None:
    """Do a TLS handshake in memory, with the strict checks that are the default in Python 3.13."""
    accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    accepting.load_cert_chain(server.certificate, server.key)
    calling = ssl.create_default_context(cafile=str(trusting))
    calling.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = calling.wrap_bio(to_client, to_server, server_hostname=host)
    answering = accepting.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, answering]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)
        if not waiting:
            break
    assert not waiting, "the handshake did not end"
    assert client.getpeercert()


def contents(home: Home) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in home.certificates.iterdir()}

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from trainyard._sdk.first_contact import bundle_with, fingerprint, is_fingerprint, yard_url
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.home import Home
from trainyard.server.http.certificates import ensure_certificates


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("gpu-box", "https://gpu-box:4781"),
        ("10.0.0.5:7000", "https://10.0.0.5:7000"),
        ("[fd00::5]", "https://[fd00::5]:4781"),
        ("https://yard.example.com/", "https://yard.example.com"),
        ("http://127.0.0.1:4780", "http://127.0.0.1:4780"),
    ],
)
def test_an_address_may_be_a_host_alone(given: str, meant: str) -> None:
    assert yard_url(given) == meant


@pytest.mark.parametrize("given", ["", "ftp://yard", "https://yard/path", "https://", "yard:port"])
def test_other_addresses_are_refused(given: str) -> None:
    with pytest.raises(InvalidRequest, match="https://10"):
        yard_url(given)


def test_fingerprints_are_compared_however_they_are_written(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.certificates.mkdir()
    ensure_certificates(home, ["127.0.0.1"], datetime.now(UTC))
    authority = home.ca_file.read_bytes()
    text = fingerprint(authority)
    assert len(text) == 95
    assert is_fingerprint(text, authority)
    assert is_fingerprint(f"SHA256:{text.replace(':', '').lower()}", authority)
    assert is_fingerprint(f"SHA-256 {text}", authority)
    assert not is_fingerprint(text[:-3], authority)
    # OpenSSL reads the authority and all the others.
    context = ssl.create_default_context(cadata=bundle_with(authority).decode())
    assert len(context.get_ca_certs()) > 50

"""The address at which other machines reach a yard, and when they cannot."""

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.addresses import advertised_address, advertised_host, is_own_address, unreachable_reason
from trainyard.server.settings import ServerSettings

BOUND = "http://10.0.0.1:4780"


def test_the_address_at_which_a_yard_listens_is_advertised_unless_another_is_set() -> None:
    assert advertised_address(ServerSettings(), BOUND) == BOUND
    assert advertised_address(ServerSettings(advertise="http://yard.lan:80/"), BOUND) == "http://yard.lan:80"


def test_a_yard_that_listens_everywhere_advertises_an_address_of_its_machine() -> None:
    address = advertised_address(ServerSettings(host="0.0.0.0"), "http://0.0.0.0:4780")

    host, _, port = address.removeprefix("http://").rpartition(":")
    assert port == "4780"
    assert host != "0.0.0.0"
    assert is_own_address(host)


@pytest.mark.parametrize("wrong", ["yard:4780", "https://yard:4781", "http://", "http://yard/path", "ftp://yard"])
def test_an_invalid_address_of_a_yard_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidRequest, match="`advertise`"):
        advertised_host(ServerSettings(advertise=wrong))


def test_a_yard_on_loopback_is_unreachable_unless_it_advertises_another_address() -> None:
    assert unreachable_reason(ServerSettings()) == "it listens on 127.0.0.1 only"
    assert unreachable_reason(ServerSettings(host="localhost")) == "it listens on localhost only"
    assert "advertises http://127.0.0.1:1" in unreachable_reason(ServerSettings(advertise="http://127.0.0.1:1"))
    assert unreachable_reason(ServerSettings(advertise="http://yard.lan:80")) == ""
    assert unreachable_reason(ServerSettings(host="0.0.0.0")) == ""


def test_a_machine_knows_its_own_addresses() -> None:
    assert is_own_address("")
    assert is_own_address("127.0.0.1")
    assert not is_own_address("192.0.2.7")
    assert not is_own_address("a-node-by-its-name.invalid")

"""By which address other machines reach a yard, and when they cannot."""

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.reach import advertised_address, advertised_host, is_of_this_machine, why_out_of_reach
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
    assert is_of_this_machine(host)


@pytest.mark.parametrize("wrong", ["yard:4780", "https://yard:4781", "http://", "http://yard/path", "ftp://yard"])
def test_what_is_no_address_of_a_yard_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidRequest, match="`advertise`"):
        advertised_host(ServerSettings(advertise=wrong))


def test_a_yard_on_loopback_is_out_of_reach_unless_it_is_known_by_another_address() -> None:
    assert why_out_of_reach(ServerSettings()) == "it listens on 127.0.0.1 only"
    assert why_out_of_reach(ServerSettings(host="localhost")) == "it listens on localhost only"
    assert "advertises http://127.0.0.1:1" in why_out_of_reach(ServerSettings(advertise="http://127.0.0.1:1"))
    assert why_out_of_reach(ServerSettings(advertise="http://yard.lan:80")) == ""
    assert why_out_of_reach(ServerSettings(host="0.0.0.0")) == ""


def test_a_machine_knows_its_own_addresses() -> None:
    assert is_of_this_machine("")
    assert is_of_this_machine("127.0.0.1")
    assert not is_of_this_machine("192.0.2.7")
    assert not is_of_this_machine("a-node-by-its-name.invalid")

"""The network interfaces of this machine."""

import socket

import pytest

from trainyard.instance.agent.program.interfaces import find_interface


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.12", "127.99.1.2", "::1"])
def test_every_address_of_the_loopback_is_there(address: str) -> None:
    assert find_interface(address, towards="127.0.0.1") == "lo"


def test_an_address_that_no_interface_has_means_the_interface_that_leads_to_the_others() -> None:
    """As with a node that others reach at an address that is not its own."""
    assert find_interface("203.0.113.7", towards="127.0.0.2") == "lo"


def test_the_link_of_an_address_is_one_of_the_machine() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("203.0.113.1", 9))  # nothing is sent; this machine has a route or none
        except OSError:
            pytest.skip("this machine has no network but its loopback")
        own = asking.getsockname()[0]
    names = [name for _, name in socket.if_nameindex()]

    assert find_interface(own, towards="127.0.0.1") in set(names) - {"lo"}

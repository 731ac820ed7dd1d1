import pytest

from trainyard.foundation.errors import Unavailable
from trainyard.server.http.listeners import bind


def test_an_address_of_another_machine_is_told_from_a_port_in_use() -> None:
    # An address that is reserved for documentation.
    with pytest.raises(Unavailable, match=r"Cannot listen on 192\.0\.2\.1 port 0: .*Choose an address of this machine"):
        bind("192.0.2.1", 0)

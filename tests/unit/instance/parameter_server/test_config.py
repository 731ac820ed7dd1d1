"""What the environment says of parameter servers."""

import socket
from pathlib import Path

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.instance.parameter_server.config import Address, ParameterServerConfig

SERVERS = {"TRAINYARD_PS_HOSTS": "algo-1:7001,algo-2:7002", "TRAINYARD_PS_TOKEN": "secret"}
ADDRESSES = (Address("algo-1", 7001), Address("algo-2", 7002))


def test_a_worker_has_a_rank_and_all_servers() -> None:
    around = ParameterServerConfig.of_worker(SERVERS | {"RANK": "1", "WORLD_SIZE": "3"})
    assert around == ParameterServerConfig(ADDRESSES, "secret", rank=1, size=3)


def test_a_server_finds_itself_by_the_name_of_its_host() -> None:
    around = ParameterServerConfig.of_server(
        SERVERS | {"SM_CURRENT_HOST": "algo-2", "TRAINYARD_PS_CHECKPOINTS": "/kept"}
    )
    assert around == ParameterServerConfig(ADDRESSES, "secret", index=1, checkpoints=Path("/kept"))


def test_a_server_finds_itself_by_the_name_of_the_machine_where_no_other_is_given() -> None:
    hosts = {"TRAINYARD_PS_HOSTS": f"algo-1:1,{socket.gethostname()}:2"}
    assert ParameterServerConfig.of_server(SERVERS | hosts).index == 1


def test_a_number_is_enough_to_find_itself() -> None:
    hosts = {"TRAINYARD_PS_HOSTS": "127.0.0.1:1,127.0.0.1:2", "TRAINYARD_PS_INDEX": "1"}
    assert ParameterServerConfig.of_server(SERVERS | hosts).index == 1


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"TRAINYARD_PS_TOKEN": ""}, "TRAINYARD_PS_TOKEN is not set"),
        ({"TRAINYARD_PS_HOSTS": ""}, "TRAINYARD_PS_HOSTS is not set"),
        ({"TRAINYARD_PS_HOSTS": "algo-1"}, 'invalid entry "algo-1"'),
        ({"TRAINYARD_PS_INDEX": "2"}, '"2"; it must be from 0 to 1'),
        ({"SM_CURRENT_HOST": "algo-9"}, "0 entries for this host, algo-9"),
    ],
)
def test_missing_and_wrong_values_are_reported(changed: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        ParameterServerConfig.of_server(SERVERS | changed)


def test_the_secret_is_not_shown() -> None:
    assert "secret" not in repr(ParameterServerConfig(ADDRESSES, "secret"))

"""The parameter servers of a job and the role of this process, as the environment says."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainyard.foundation.errors import InvalidRequest

_CHECKPOINT_S = 30.0


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ParameterServerConfig:
    """The servers in order, and what this process is: the worker `rank` of `size`, or the server `index`."""

    servers: tuple[Address, ...]
    token: str = field(repr=False)
    rank: int = 0
    size: int = 1
    index: int | None = None
    checkpoints: Path | None = None
    checkpoint_s: float = _CHECKPOINT_S

    @classmethod
    def of_worker(cls, environment: Mapping[str, str]) -> "ParameterServerConfig":
        return cls(
            _servers(environment),
            _require(environment, "TRAINYARD_PS_TOKEN"),
            rank=int(_require(environment, "RANK")),
            size=int(_require(environment, "WORLD_SIZE")),
        )

    @classmethod
    def of_server(cls, environment: Mapping[str, str]) -> "ParameterServerConfig":
        servers = _servers(environment)
        folder = environment.get("TRAINYARD_PS_CHECKPOINTS")
        return cls(
            servers,
            _require(environment, "TRAINYARD_PS_TOKEN"),
            index=_index(environment, servers),
            checkpoints=Path(folder) if folder else None,
            checkpoint_s=float(environment.get("TRAINYARD_PS_CHECKPOINT_S", _CHECKPOINT_S)),
        )


def _servers(environment: Mapping[str, str]) -> tuple[Address, ...]:
    given = _require(environment, "TRAINYARD_PS_HOSTS")
    return tuple(_address(each) for each in given.split(","))


def _address(given: str) -> Address:
    host, _, port = given.rpartition(":")
    if not host or not port.isdigit():
        raise InvalidRequest(f'TRAINYARD_PS_HOSTS has an invalid entry "{given}"; use host:port.')
    return Address(host, int(port))


def _index(environment: Mapping[str, str], servers: tuple[Address, ...]) -> int:
    if given := environment.get("TRAINYARD_PS_INDEX"):
        if not given.isdigit() or int(given) >= len(servers):
            raise InvalidRequest(f'TRAINYARD_PS_INDEX is "{given}"; it must be from 0 to {len(servers) - 1}.')
        return int(given)
    name = environment.get("SM_CURRENT_HOST") or socket.gethostname()
    mine = [number for number, server in enumerate(servers) if server.host == name]
    if len(mine) != 1:
        raise InvalidRequest(
            f"TRAINYARD_PS_HOSTS has {len(mine)} entries for this host, {name}; set TRAINYARD_PS_INDEX to the index of "
            "this server's entry, counted from 0."
        )
    return mine[0]


def _require(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise InvalidRequest(
            f"{name} is not set. A job has a parameter server when its distribution is "
            '{"parameter_server": {"enabled": True}}.'
        )
    return value

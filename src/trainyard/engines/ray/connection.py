"""The connection of this process to a Ray cluster.

A process that speaks to Ray is part of the cluster: on its machine a raylet has to run, and it does not outlive that.
"""

import contextlib
import logging
import os
import socket
import threading
import time

import ray

from trainyard.foundation.errors import Unavailable

log = logging.getLogger(__name__)

AUTO = "auto"  # the cluster that was started last on this machine

_REACH_S = 5.0
_PAUSE_S = 3.0  # between two tries


class Connection:
    """Connects to the cluster at `address` in a thread, and tries again until it has done so."""

    def __init__(self, address: str, *, namespace: str) -> None:
        self._address = address
        self._namespace = namespace
        self._has_tried = threading.Event()
        self._why_not = f"The Ray cluster at {address} is being connected."
        threading.Thread(target=self._connect, name="ray-connection", daemon=True).start()

    @property
    def is_up(self) -> bool:
        return not self._why_not

    def require(self, *, wait_s: float) -> None:
        """Unavailable, with the reason, when there is no connection, once the first try has come to its end."""
        self._has_tried.wait(wait_s)
        if self._why_not:
            raise Unavailable(self._why_not)

    def _connect(self) -> None:
        while self._why_not:
            try:
                connect(self._address, namespace=self._namespace)
                self._why_not = ""
            except Unavailable as error:
                if error.message != self._why_not:
                    log.warning("no connection to Ray", extra={"why": error.message})
                self._why_not = error.message
            self._has_tried.set()
            time.sleep(_PAUSE_S)


def connect(address: str, *, namespace: str) -> None:
    """Make this process a driver of the cluster; Unavailable when it cannot be, with what to do about it."""
    own = None if address == AUTO else _own_address(address)
    if own is not None and own.startswith("127."):
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # or Ray takes another address for this machine's
    try:
        ray.init(address, namespace=namespace, _node_ip_address=own, log_to_driver=False, configure_logging=False)
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError) as error:
        ray.shutdown()
        where = f"at {address}" if own else "of this machine"
        raise Unavailable(f"The Ray cluster {where} cannot be used: {_reason(error, own)}") from error


def _own_address(address: str) -> str:
    """The address of this machine that faces the head; Unavailable when nothing listens there."""
    host, _, port = address.rpartition(":")
    try:
        with contextlib.closing(socket.create_connection((host, int(port)), timeout=_REACH_S)) as connection:
            return str(connection.getsockname()[0])
    except (OSError, ValueError) as error:
        raise Unavailable(
            f"Nothing answers at {address}, where the Ray cluster should be ({error}). Start it with "
            "`ray start --head`, or correct the setting ray_address: the address and port that this command tells."
        ) from error


def _reason(error: BaseException, own: str | None) -> str:
    told = f"{error} {error.__cause__ or ''}"
    if "InvalidAuthToken" in told or isinstance(error, ray.exceptions.AuthenticationError):
        return "it does not accept the token. Set ray_token to the one that the cluster was started with."
    if "ersion mismatch" in told:
        return f"it runs other versions of Ray or Python than the yard does. {error}"
    if "No node info found" in told:
        return f"no node of it runs on this machine ({own}). Start one with `ray start --address=… --num-cpus=0`."
    if "Could not find any running" in told:
        return "there is none. Start it with `ray start --head`, or name another by its address in ray_address."
    return f"{str(error).rstrip('.')}."

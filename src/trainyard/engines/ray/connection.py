"""The connection of this process to a Ray cluster.

A Ray driver is part of the cluster: a raylet has to run on its machine, and the driver ends with it.
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

# The cluster that was started last on this machine.
AUTO = "auto"

_CONNECT_TIMEOUT_S = 5.0
_RETRY_INTERVAL_S = 3.0


class RayConnection:
    """Connects to the cluster at `address` in a thread, and retries until it succeeds."""

    def __init__(self, address: str, *, namespace: str) -> None:
        self._address = address
        self._namespace = namespace
        self._has_tried = threading.Event()
        self._obstacle = f"The connection to the Ray cluster at {address} is being established."
        threading.Thread(target=self._connect, name="ray-connection", daemon=True).start()

    @property
    def is_up(self) -> bool:
        return not self._obstacle

    def require(self, *, wait_s: float) -> None:
        """Wait for the first attempt to finish. Raises Unavailable, with the reason, if there is no connection."""
        self._has_tried.wait(wait_s)
        if self._obstacle:
            raise Unavailable(self._obstacle)

    def _connect(self) -> None:
        while self._obstacle:
            try:
                connect(self._address, namespace=self._namespace)
                self._obstacle = ""
            except Unavailable as error:
                if error.message != self._obstacle:
                    log.warning("no connection to Ray", extra={"why": error.message})
                self._obstacle = error.message
            self._has_tried.set()
            time.sleep(_RETRY_INTERVAL_S)


def connect(address: str, *, namespace: str) -> None:
    """Make this process a driver of the cluster. Raises Unavailable, which says what to do, if that fails."""
    own = None if address == AUTO else _own_address(address)
    if own is not None and own.startswith("127."):
        # Otherwise Ray would use another address of this machine.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    try:
        ray.init(address, namespace=namespace, _node_ip_address=own, log_to_driver=False, configure_logging=False)
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError) as error:
        ray.shutdown()
        where = f"at {address}" if own else "of this machine"
        raise Unavailable(f"The Ray cluster {where} cannot be used: {_reason(error, own)}") from error


def _own_address(address: str) -> str:
    """Return the address with which this machine reaches the head. Raises Unavailable if nothing listens there."""
    host, _, port = address.rpartition(":")
    try:
        with contextlib.closing(socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT_S)) as connection:
            return str(connection.getsockname()[0])
    except (OSError, ValueError) as error:
        raise Unavailable(
            f"Nothing answers at {address}, where the Ray cluster should be ({error}). Start it with "
            "`ray start --head`, or correct the setting ray_address: the address and port that this command prints."
        ) from error


def _reason(error: BaseException, own: str | None) -> str:
    text = f"{error} {error.__cause__ or ''}"
    if "InvalidAuthToken" in text or isinstance(error, ray.exceptions.AuthenticationError):
        return "it does not accept the token. Set ray_token to the one that the cluster was started with."
    if "ersion mismatch" in text:
        return f"it runs other versions of Ray or Python than the yard. {error}"
    if "No node info found" in text:
        return f"it has no node on this machine ({own}). Start one with `ray start --address=… --num-cpus=0`."
    if "Could not find any running" in text:
        return "there is none. Start it with `ray start --head`, or set ray_address to the address of another."
    return f"{str(error).rstrip('.')}."

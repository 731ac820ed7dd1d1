"""A program that reports a worker as done after its process has succeeded. It does not need torch.

A server that does not answer has not started yet: it exits only when it knows that all workers are done. If the worker
has reported that itself, the server may already have exited; the launcher then kills this program at its end.
"""

import os

from trainyard.instance.parameter_server.config import ParameterServerConfig
from trainyard.instance.parameter_server.connection import connect, receive_message, send_message

_TIMEOUT_S = 600.0
_MAX_ANSWER_BYTES = 4096


def main() -> None:
    """Tell all servers. The local one comes last, so that all others know when it exits."""
    config = ParameterServerConfig.of_worker(os.environ)
    local = int(os.environ["TRAINYARD_PS_INDEX"])
    for server in (*config.servers[:local], *config.servers[local + 1 :], config.servers[local]):
        with connect(server, config, _TIMEOUT_S) as connection:
            send_message(connection, {"do": "done"})
            receive_message(connection, max_bytes=_MAX_ANSWER_BYTES)


if __name__ == "__main__":
    main()

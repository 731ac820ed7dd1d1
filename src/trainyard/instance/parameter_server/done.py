"""The program that says for a worker that it is done, since its process has ended well. It needs no torch.

A server that does not answer has yet to start: it ends only when it knows that all workers are done. One that a worker
has told itself may have ended; whoever starts this ends it when it is of no use any more.
"""

import os

from trainyard.instance.parameter_server.connecting import connected
from trainyard.instance.parameter_server.surroundings import Surroundings
from trainyard.instance.parameter_server.words import receive_words, send_words

_TIMEOUT_S = 600.0
_MAX_ANSWER_BYTES = 4096


def main() -> None:
    """Tell all servers. The one beside comes last, so that all others have been told when it ends."""
    around = Surroundings.of_worker(os.environ)
    beside = int(os.environ["TRAINYARD_PS_INDEX"])
    for server in (*around.servers[:beside], *around.servers[beside + 1 :], around.servers[beside]):
        with connected(server, around, _TIMEOUT_S) as connection:
            send_words(connection, {"do": "done"})
            receive_words(connection, max_bytes=_MAX_ANSWER_BYTES)


if __name__ == "__main__":
    main()

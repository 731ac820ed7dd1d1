"""Forks agents, with their code loaded once for all of them: `python -I nurse.py DESCRIPTOR ROOM`.

It lies at the top of a copy of the agent's code and serves one engine over a socket, of which the descriptor is this
end. It says when it is ready. Then each packet is a birth: a JSON object with the `folder` of an instance and the
`environment` of its agent, and with it three descriptors: the hold on the instance, the hold on the copy, and the log
of the agent. The answer is the agent's pid, or 0 when the machine refuses another process.

It starts no thread, runs nothing of a job and keeps no descriptor of an agent. When the engine's end is closed it ends,
and the agents go on. `ROOM` is never read: its place in the command line is where an agent's own is written.
"""

import contextlib
import gc
import importlib
import json
import logging
import os
import random
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

AGENT = "trainyard.instance.agent.main"
LIBRARIES = "trainyard_libraries"  # what agents need and the machine does not have, where they were sent to it
READY = b"ready"
MOST_BYTES = 1 << 17

_DESCRIPTORS = 3


def main(descriptor: str, _room: str) -> None:
    here = Path(__file__).resolve().parent
    sys.path.insert(0, str(here))
    sys.path.append(str(here / LIBRARIES))
    # The kernel then forgets agents that end, so that nobody has to wait for them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # An engine that goes with a word of ours unread leaves a broken connection, not a closed one.
    with contextlib.suppress(ConnectionError), socket.socket(fileno=int(descriptor)) as engine:
        engine.set_inheritable(False)
        importlib.import_module(AGENT)
        gc.freeze()
        engine.send(READY)
        while _serve(engine):
            pass


def _serve(engine: socket.socket) -> bool:
    """Whether the engine is still there, after one birth."""
    data, descriptors, _, _ = socket.recv_fds(engine, MOST_BYTES, _DESCRIPTORS)
    if not data:
        return False
    for descriptor in descriptors:  # its flags argument, which should do that, is not passed on by Python 3.11
        os.set_inheritable(descriptor, False)
    try:
        pid = os.fork()
    except OSError:
        pid = -1
    if pid == 0:
        engine.close()
        _live(json.loads(data), descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    engine.send(str(max(pid, 0)).encode())
    return True


def _live(birth: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """Be the agent, and end as a Python of its own would, without the time that tidying up its memory takes."""
    code = 1
    try:
        code = _become_agent(birth["folder"], birth["environment"], log=descriptors[-1])
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            logging.shutdown()
            sys.stdout.flush()
        finally:
            os._exit(code)


def _become_agent(folder: str, environment: dict[str, str], *, log: int) -> int:
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in enumerate((nothing, log, log)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(log)
    os.environ.clear()
    os.environ.update(environment)
    random.seed()
    from trainyard.foundation.command_line import show_command
    from trainyard.link.presence import announce

    show_command([sys.executable, "-I", str(Path(__file__).with_name("start.py")), folder])
    announce(Path(folder))
    agent = importlib.import_module(AGENT)
    sys.argv = [str(agent.__file__), folder]
    run: Callable[[Sequence[str]], int] = agent.main
    return run([folder])


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The fork server of agents, which loads their code once: `python -I fork_server.py DESCRIPTOR PADDING`.

It runs from the top of a copy of the agent's code and serves one engine over the socket DESCRIPTOR. It sends a message
when it is ready. From then on each packet is a request to fork an agent: a JSON object with the `folder` of an instance
and the `environment` of its agent, and three descriptors: the lock of the instance, the lock of the copy, and the
agent's log. The answer is the agent's pid, or 0 if the machine refuses another process.

It starts no thread, runs no code of a job and keeps no descriptor of an agent. It exits when the engine closes its end
of the socket; agents keep running. PADDING is never read: it makes room in the command line for an agent's own.
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
# Libraries that were sent with the agent's code because the machine does not have them.
LIBRARIES = "trainyard_libraries"
READY = b"ready"
MAX_REQUEST_BYTES = 1 << 17

_DESCRIPTORS = 3


def main(descriptor: str, _padding: str) -> None:
    here = Path(__file__).resolve().parent
    sys.path.insert(0, str(here))
    sys.path.append(str(here / LIBRARIES))
    # The kernel then reaps agents that end.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # An engine that exits with an unread message leaves a broken connection, not a closed one.
    with contextlib.suppress(ConnectionError), socket.socket(fileno=int(descriptor)) as engine:
        engine.set_inheritable(False)
        importlib.import_module(AGENT)
        gc.freeze()
        engine.send(READY)
        while _handle_request(engine):
            pass


def _handle_request(engine: socket.socket) -> bool:
    """Fork one agent. Return False once the engine has closed its end."""
    data, descriptors, _, _ = socket.recv_fds(engine, MAX_REQUEST_BYTES, _DESCRIPTORS)
    if not data:
        return False
    # Python 3.11 does not pass on the flags argument of recv_fds, which should do this.
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    try:
        pid = os.fork()
    except OSError:
        pid = -1
    if pid == 0:
        engine.close()
        _run_agent(json.loads(data), descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    engine.send(str(max(pid, 0)).encode())
    return True


def _run_agent(launch: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """Run the agent, and exit as a Python of its own would, but without the time it takes to free its memory."""
    code = 1
    try:
        code = _become_agent(launch["folder"], launch["environment"], log=descriptors[-1])
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
    from trainyard.link.agent_process import announce_agent

    show_command([sys.executable, "-I", str(Path(__file__).with_name("start.py")), folder])
    announce_agent(Path(folder))
    agent = importlib.import_module(AGENT)
    sys.argv = [str(agent.__file__), folder]
    run: Callable[[Sequence[str]], int] = agent.main
    return run([folder])


if __name__ == "__main__":
    main(*sys.argv[1:])

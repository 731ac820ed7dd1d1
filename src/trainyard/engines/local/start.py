"""Becomes the agent of one instance: `python -I start.py [orphaned] INSTANCE-FOLDER DESCRIPTOR…`.

It lies at the top of a copy of the agent's code, and runs from there whatever version is installed meanwhile. The
descriptors are holds: on the instance, and on this copy. They end with this process and are given to none of its own.
With `orphaned` the agent is a child of nobody who might end it.
"""

import os
import runpy
import sys
from pathlib import Path

AGENT = "trainyard.instance.agent.main"
ORPHANED = "orphaned"
LIBRARIES = "trainyard_libraries"  # what agents need and the machine does not have, where they were sent to it


def main(arguments: list[str]) -> None:
    if arguments[0] == ORPHANED:
        _leave_parent()
        arguments = arguments[1:]
    become_agent(*arguments)


def become_agent(folder: str, *descriptors: str) -> None:
    for descriptor in descriptors:
        os.set_inheritable(int(descriptor), False)
    here = Path(__file__).resolve().parent
    sys.path.insert(0, str(here))
    sys.path.append(str(here / LIBRARIES))
    from trainyard.link.presence import announce

    announce(Path(folder))
    sys.argv = [AGENT, folder]
    runpy.run_module(AGENT, run_name="__main__", alter_sys=True)


def _leave_parent() -> None:
    if os.fork():
        os._exit(0)
    os.setsid()


if __name__ == "__main__":
    main(sys.argv[1:])

"""Becomes the agent of one instance: `python -I start.py [orphaned] INSTANCE-FOLDER DESCRIPTOR…`.

It runs from the top of a copy of the agent's code, whatever version is installed later. The descriptors are locks on
the instance and on this copy. They end with this process; its children do not inherit them. With `orphaned`, the agent
leaves its parent, so that nobody ends it together with the parent.
"""

import os
import runpy
import sys
from pathlib import Path

AGENT = "trainyard.instance.agent.main"
ORPHANED = "orphaned"
# Libraries that were sent with the agent's code because the machine does not have them.
LIBRARIES = "trainyard_libraries"


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
    from trainyard.link.agent_process import announce_agent

    announce_agent(Path(folder))
    sys.argv = [AGENT, folder]
    runpy.run_module(AGENT, run_name="__main__", alter_sys=True)


def _leave_parent() -> None:
    if os.fork():
        os._exit(0)
    os.setsid()


if __name__ == "__main__":
    main(sys.argv[1:])

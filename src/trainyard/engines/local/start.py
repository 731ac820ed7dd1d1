"""Becomes the agent of one instance: `python -I start.py INSTANCE-FOLDER DESCRIPTOR…`.

It lies at the top of a copy of the agent's code, and runs from there whatever version is installed meanwhile. The
descriptors are holds: on the instance, and on this copy. They end with this process and are given to none of its own.
"""

import os
import runpy
import sys
from pathlib import Path

AGENT = "trainyard.instance.agent.main"


def main(folder: str, *descriptors: str) -> None:
    for descriptor in descriptors:
        os.set_inheritable(int(descriptor), False)
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from trainyard.link.presence import announce

    announce(Path(folder))
    sys.argv = [AGENT, folder]
    runpy.run_module(AGENT, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

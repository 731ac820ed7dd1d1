"""Launches one sandbox and acts on it, in its own process, so that tests can run it as any user.

Reads its instructions as JSON from standard input and writes the results as JSON. It runs on a bare interpreter with
only the source of this project on its path.
"""

import json
import os
import signal
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainyard.foundation.errors import TrainyardError
from trainyard.instance.sandbox.contract import Bind, CopyOnWrite, Isolation, Sandboxed, SandboxRequest
from trainyard.instance.sandbox.launcher import footprint, launch
from trainyard.link.contract import LimitSpec

_PATIENCE_S = 60.0


def main() -> None:
    plan = json.load(sys.stdin)
    _tell(drive(plan["request"], plan["actions"]))


def drive(request: dict[str, Any], actions: list[list[Any]]) -> dict[str, Any]:
    """Launch a sandbox, carry out the actions, wait for the end, and return the results."""
    wanted = read_request(request)
    mounts = _mounts()
    reader, writer = os.pipe()
    output = _Output(reader)
    try:
        sandboxed = launch(wanted, writer)
    except TrainyardError as error:
        return {"error": type(error).__name__, "message": error.message, "left": _left(wanted, mounts)}
    finally:
        os.close(writer)
    output.start()
    for name, *arguments in actions:
        _ACTIONS[name](sandboxed, output, *arguments)
    ended = sandboxed.wait(_PATIENCE_S)
    output.join(_PATIENCE_S)
    sandboxed.close()
    return {
        "ended": None if ended is None else asdict(ended),
        "output": output.text,
        "not_enforced": list(sandboxed.not_enforced),
        "left": _left(wanted, mounts),
    }


def read_request(values: dict[str, Any]) -> SandboxRequest:
    values = dict(values)
    for name in ("ml_folder", "scratch_folder", "interpreter"):
        values[name] = Path(values[name])
    for name in ("read_only", "writable"):
        values[name] = [Bind(Path(source), *rest) for source, *rest in values.get(name, [])]
    layered = values.get("copy_on_write", [])
    values["copy_on_write"] = [
        CopyOnWrite(Path(source), target, Path(to), *rest) for source, target, to, *rest in layered
    ]
    values["hidden"] = [Path(path) for path in values.get("hidden", [])]
    values["limits"] = LimitSpec(**values.get("limits", {}))
    values["isolation"] = Isolation(values.get("isolation", Isolation.NAMESPACES))
    return SandboxRequest(**values)


class _Output(threading.Thread):
    """Collects the output of the program until every process has closed it."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(daemon=True)
        self._descriptor = descriptor
        self._arrived = threading.Condition()
        self.text = ""

    def run(self) -> None:
        while chunk := os.read(self._descriptor, 65536):
            with self._arrived:
                self.text += chunk.decode(errors="replace")
                self._arrived.notify_all()

    def await_text(self, wanted: str) -> None:
        with self._arrived:
            if not self._arrived.wait_for(lambda: wanted in self.text, _PATIENCE_S):
                raise AssertionError(f"{wanted!r} did not arrive; the output is {self.text!r}")


def _await_text(_: Sandboxed, output: _Output, wanted: str) -> None:
    output.await_text(wanted)


def _terminate(sandboxed: Sandboxed, _: _Output) -> None:
    sandboxed.terminate()


def _kill(sandboxed: Sandboxed, _: _Output) -> None:
    sandboxed.kill()


def _kill_while_waiting(sandboxed: Sandboxed, _: _Output) -> None:
    """Kill the sandbox from this thread while another one waits."""
    waiting = threading.Thread(target=sandboxed.wait)
    waiting.start()
    sandboxed.kill()
    waiting.join(_PATIENCE_S)
    if waiting.is_alive():
        raise AssertionError("the waiting thread was not notified")


def _kill_supervisor(sandboxed: Sandboxed, _: _Output) -> None:
    """Kill the supervisor, which is the parent of the root of the tree."""
    lines = Path(f"/proc/{sandboxed.pid}/status").read_text().splitlines()
    parent = next(int(line.split()[1]) for line in lines if line.startswith("PPid:"))
    os.kill(parent, signal.SIGKILL)


def _announce(sandboxed: Sandboxed, output: _Output) -> None:
    """Announce that the program runs, and wait to be killed."""
    _tell({"pid": sandboxed.pid})
    time.sleep(_PATIENCE_S)


_ACTIONS: dict[str, Any] = {
    "await": _await_text,
    "terminate": _terminate,
    "kill": _kill,
    "kill while waiting": _kill_while_waiting,
    "kill supervisor": _kill_supervisor,
    "announce": _announce,
}


def _tell(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _left(request: SandboxRequest, mounts: set[str]) -> list[str]:
    """Return what the sandbox left on the machine. Other tests mount at the same time, in other temporary folders."""
    groups = [str(group) for group in footprint(request) if group.exists()]
    shared, ours = Path(tempfile.gettempdir()), request.ml_folder.parent
    new = [Path(line.split()[4]) for line in _mounts() - mounts]
    return groups + [str(mount) for mount in new if mount.is_relative_to(ours) or not mount.is_relative_to(shared)]


def _mounts() -> set[str]:
    return set(Path("/proc/self/mountinfo").read_text().splitlines())


if __name__ == "__main__":
    main()

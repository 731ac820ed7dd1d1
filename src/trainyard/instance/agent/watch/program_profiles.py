"""Tells the hook in the program what to profile, and passes on what it has to say."""

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePosixPath

from trainyard.foundation.confined import ConfinedFolder
from trainyard.instance.agent.context import InstanceContext
from trainyard.instance.agent.program.configuration import profiler_config
from trainyard.instance.agent.watch.event_server import EventServer
from trainyard.link.contract import ProfilerSpec
from trainyard.link.event_protocol import PROFILE_WANTED, PROFILER_CONFIG, AgentEvent, AgentEventKind

_MAX_NOTES = 20
_MAX_NOTE_CHARACTERS = 1024

log = logging.getLogger(__name__)


class ProgramProfiles:
    """The configuration and the requests of one instance's hook, and its notes. One thread calls everything.

    Without a debugger, this receives the events of the program; with one, the debugger does.
    """

    def __init__(self, context: InstanceContext, profiler: ProfilerSpec) -> None:
        self._context = context
        self._parameters = dict(profiler.parameters)
        self._is_enabled = profiler.is_enabled
        self._profiler = profiler
        self._requests = self._waiting_steps = 0
        self._is_running = False
        self._notes: set[str] = set()
        self._events: EventServer | None = None

    def start(self) -> None:
        """Begin: the program runs. It gets the request that came before."""
        self._is_running = True
        if self._context.spec.debugger is None:
            # Without it, profiles are taken; only what the hook has to say is not heard.
            with suppress(OSError):
                self._events = EventServer(self._context.folder, self._context.owner)
        if self._waiting_steps:
            self._request(self._waiting_steps)

    def change(self, payload: Mapping[str, object]) -> None:
        """Carry out a command: change the configuration, or ask for a profile of the next steps."""
        parameters, is_enabled, steps = (payload.get(name) for name in ("parameters", "is_enabled", "steps"))
        before = (self._parameters, self._is_enabled)
        if isinstance(parameters, Mapping):
            self._parameters = {str(name): str(value) for name, value in parameters.items()}
        if isinstance(is_enabled, bool):
            self._is_enabled = is_enabled
        if (self._parameters, self._is_enabled) != before:
            folder, name = _split(PROFILER_CONFIG)
            config = profiler_config(self._parameters, path=self._profiler.output.path, is_enabled=self._is_enabled)
            self._replace(folder, name, config)
        if type(steps) is int:
            self._request(steps)

    def poll(self) -> None:
        for event in self._events.read_events() if self._events is not None else ():
            self._handle(event)

    def stop(self) -> None:
        """Handle the last events. A second call does nothing."""
        self._is_running = False
        events, self._events = self._events, None
        if events is not None:
            for event in events.drain():
                self._handle(event)
            events.close()

    def _request(self, steps: int) -> None:
        if not self._is_running:
            # A program that starts later does not know that it is late.
            self._waiting_steps = steps
            return
        self._waiting_steps = 0
        self._requests += 1
        folder, name = _split(PROFILE_WANTED)
        self._replace(folder, name, {"number": self._requests, "steps": steps})

    def _replace(self, folder: str, name: str, content: Mapping[str, object]) -> None:
        """Replace a file that the hook reads. The program may have done anything to its folder."""
        try:
            with ConfinedFolder.open(self._context.folder.ml, folder) as opened:
                opened.replace_file(name, json.dumps(content).encode(), owner=self._context.owner.uid)
        except OSError as error:
            log.warning("the program cannot be told what to profile", extra={"file": name}, exc_info=error)
            self._note(f"The program could not be told what to profile: {error.strerror}.")

    def _handle(self, event: AgentEvent) -> None:
        text = event.payload.get("text")
        if event.kind is AgentEventKind.NOTE and isinstance(text, str):
            self._note(text[:_MAX_NOTE_CHARACTERS])

    def _note(self, text: str) -> None:
        if len(self._notes) < _MAX_NOTES and text not in self._notes:
            self._notes.add(text)
            self._context.reports.note(text)


def _split(path: str) -> tuple[str, str]:
    return str(PurePosixPath(path).parent), PurePosixPath(path).name

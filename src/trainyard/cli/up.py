"""`trainyard up`: start a yard, in this terminal or in the background."""

import contextlib
import ctypes
import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import click

from trainyard.cli.console import Command, chosen_home, command_line, home_option, say
from trainyard.cli.failure import ExitCode, Failure
from trainyard.foundation.files import PRIVATE_FOLDER
from trainyard.foundation.home import Home, Runtime
from trainyard.foundation.journal import LIMIT_BYTES, open_log, put_aside

START_LIMIT_S = 60
_POLL_S = 0.02
_TAIL_LINES = 15
_SAID = "error: "  # how the server begins a message to the user


@click.command(
    cls=Command,
    short_help="Start a yard.",
    examples=(
        "trainyard up                     in this terminal, until Ctrl-C",
        "trainyard up --detach            in the background; returns when it answers",
        "trainyard up --port 5000         http on 5000, https on 5001",
        "trainyard up --home /data/yard   keep everything there",
        "trainyard up --engines local,ray   jobs run here or, where a rule or a tag says so, on a Ray cluster",
    ),
)
@home_option
@click.option("--host", metavar="H", help="Address to bind to. Default: 127.0.0.1, this machine only.")
@click.option(
    "--port", type=click.IntRange(0, 65534), metavar="P", help="Port of http; https is the next. Default: 4780."
)
@click.option(
    "--engine",
    "--engines",
    "engines",
    metavar="NAMES",
    help="What runs jobs: local, ray, container, or several separated by commas, the default first. Default: local.",
)
@click.option("-d", "--detach", is_flag=True, help="Run in the background.")
def up(folder: Path | None, host: str | None, port: int | None, engines: str | None, detach: bool) -> int:
    """Start a yard. The first start makes the home folder, an account, a role and a key pair."""
    home = chosen_home(folder)
    home.check()
    running = home.runtime()
    if running is not None:
        raise Failure(
            f"A yard runs on {home.root} already.",
            why=f"It is process {running.pid} at {running.http}.",
            next_step=f"{command_line('down', home)}, or trainyard up --home DIR for another one",
        )
    command = _command(home, host=host, port=port, engines=engines)
    if detach:
        _greet(home, _start_detached(home, command))
        return ExitCode.OK
    return _run_here(home, command)


def _command(home: Home, *, host: str | None, port: int | None, engines: str | None) -> list[str]:
    command = [sys.executable, "-m", "trainyard.server.main", "--home", str(home.root)]
    command += ["--host", host] if host is not None else []
    command += ["--port", str(port)] if port is not None else []
    command += ["--engines", engines] if engines is not None else []
    return command


def _start_detached(home: Home, command: list[str]) -> Runtime:
    log = _open_log(home)
    with os.fdopen(log.descriptor, "ab") as file:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd="/", start_new_session=True
        )
    say("Starting the yard …")
    try:
        return _wait_until_it_answers(home, child)
    except Failure as failure:
        lines = _last_words(home, log.start)
        if lines and lines[-1].startswith(_SAID):
            failure.why = lines[-1].removeprefix(_SAID)
        else:
            failure.why = "\n       ".join(lines) or failure.why
            failure.next_step = f"less {home.server_log}"
        raise


def _run_here(home: Home, command: list[str]) -> int:
    """Be the parent of a yard that writes to this terminal, hand signals on to it, and leave when it has left."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0, preexec_fn=_end_with_parent())
    with _signals_stop(child):
        try:
            _greet(home, _wait_until_it_answers(home, child))
            say("Ctrl-C stops it.")
        except Failure:
            if child.poll() is None:
                raise
        code = child.wait()
    return ExitCode.OK if code in (0, -signal.SIGTERM) else ExitCode.FAILED


def _end_with_parent() -> Callable[[], None]:
    """Lets the kernel stop the child when the parent is killed; prepared before the fork, where nothing may fail."""
    prctl = ctypes.CDLL(None).prctl

    def ask_kernel() -> None:
        prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG

    return ask_kernel


@contextlib.contextmanager
def _signals_stop(child: subprocess.Popen[bytes]) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of signal handlers
        child.terminate()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait_until_it_answers(home: Home, child: subprocess.Popen[bytes]) -> Runtime:
    """The yard says in its runtime file where it listens; then it is asked for its health."""
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        runtime = home.runtime()
        if runtime is not None and runtime.pid == child.pid and _answers(runtime):
            return runtime
        if child.poll() is not None:
            raise Failure("The yard did not start.", why=f"It ended with {child.returncode}.")
        time.sleep(_POLL_S)
    child.terminate()
    raise Failure(f"The yard did not answer within {START_LIMIT_S} s.", code=ExitCode.TIME_LIMIT)


def _answers(runtime: Runtime) -> bool:
    address = urlsplit(runtime.http)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=START_LIMIT_S)
    try:
        connection.request("GET", "/_trainyard/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _greet(home: Home, runtime: Runtime) -> None:
    say(f"The yard answers at {runtime.http} and {runtime.https}")
    say(f"  home      {runtime.home}")
    say(f'  use it    eval "$({command_line("env", home)})"')
    say(f"  stop it   {command_line('down', home)}")


@dataclass(frozen=True, slots=True)
class _Log:
    descriptor: int
    start: int  # where the words of this start begin


def _open_log(home: Home) -> _Log:
    try:
        home.root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            if home.server_log.stat().st_size > LIMIT_BYTES:
                put_aside(home.server_log)
        descriptor = open_log(home.server_log)
    except OSError as error:
        raise Failure(
            f"The home folder {home.root} cannot be written.",
            why=f"{error.strerror}.",
            next_step="trainyard up --detach --home DIR, with a folder that can be",
        ) from error
    return _Log(descriptor, os.fstat(descriptor).st_size)


def _last_words(home: Home, start: int) -> list[str]:
    with home.server_log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-_TAIL_LINES:]

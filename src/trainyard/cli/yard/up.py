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
from urllib.parse import urljoin, urlsplit

import click

from trainyard._sdk.connection import access_from_environment
from trainyard.cli.terminal.console import (
    CommandWithExamples,
    command_line,
    environment,
    home_option,
    result_option,
    say,
    select_home,
)
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.json_output import JsonFields, pascal_case_keys, print_json
from trainyard.cli.terminal.progress import spinner
from trainyard.cli.yard.reachability import authority_fingerprint
from trainyard.foundation.files import PRIVATE_FOLDER
from trainyard.foundation.home import Home, Runtime
from trainyard.foundation.journal import MAX_LOG_BYTES, open_log, rotate_log

START_LIMIT_S = 60
_POLL_S = 0.02
_TAIL_LINES = 15
_PR_SET_PDEATHSIG = 1
# The prefix of messages of the server for the user.
_ERROR_PREFIX = "error: "


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard up                     in this terminal, until Ctrl-C",
        "trainyard up --detach            in the background; returns when the yard answers",
        "trainyard up --port 5000         http on 5000, https on 5001",
        "trainyard up --home /data/yard   with another home folder",
        "trainyard up --engines local,ray   on this machine or, if a rule or a tag says so, on a Ray cluster",
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
    help="Engines that run jobs: local, ray, container, or several separated by commas. The first is the default for "
    "jobs. Default: local.",
)
@click.option("-d", "--detach", is_flag=True, help="Run in the background.")
@result_option("Http", "Https", "Pid", "Version", "Home")
def up(
    folder: Path | None,
    host: str | None,
    port: int | None,
    engines: str | None,
    detach: bool,
    as_json: JsonFields | None,
) -> int:
    """Start a yard. The first start creates the home folder, an account, a role and a key pair."""
    if sys.platform != "linux":
        raise Failure(
            "A yard runs on Linux only.",
            why="Its jobs run in sandboxes of the Linux kernel. This machine can use a yard that runs elsewhere.",
            next_step="trainyard login URL",
        )
    home = select_home(folder)
    home.check()
    running = home.runtime()
    if running is not None:
        raise Failure(
            f"A yard is already running on {home.root}.",
            why=f"It is process {running.pid} at {running.http}.",
            next_step=f"{command_line('down', home)}, or trainyard up --home DIR for another yard",
        )
    command = _command(home, host=host, port=port, engines=engines)
    if detach:
        _print_addresses(home, _start_detached(home, command), as_json)
        return ExitCode.OK
    return _run_in_foreground(home, command, as_json)


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
    try:
        with spinner("Starting the yard"):
            return _wait_until_it_answers(home, child)
    except Failure as failure:
        lines = _last_log_lines(home, log.start)
        if lines and lines[-1].startswith(_ERROR_PREFIX):
            failure.why = lines[-1].removeprefix(_ERROR_PREFIX)
        else:
            failure.why = "\n       ".join(lines) or failure.why
            failure.next_step = f"less {home.server_log}"
        raise


def _run_in_foreground(home: Home, command: list[str], as_json: JsonFields | None) -> int:
    """Run a yard as a child process that prints to this terminal. Signals stop it; return when it has ended."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0, preexec_fn=_parent_death_signal())
    with _forward_signals(child):
        try:
            _print_addresses(home, _wait_until_it_answers(home, child), as_json)
            say("Press Ctrl-C to stop it.")
        except Failure:
            if child.poll() is None:
                raise
        code = child.wait()
    return ExitCode.OK if code in (0, -signal.SIGTERM) else ExitCode.FAILED


def _parent_death_signal() -> Callable[[], None]:
    """Return a function that makes the kernel stop this process when its parent is killed.

    The library is loaded here, before the fork, because loading it in the child could fail.
    """
    prctl = ctypes.CDLL(None).prctl

    def set_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

    return set_signal


@contextlib.contextmanager
def _forward_signals(child: subprocess.Popen[bytes]) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of signal handlers
        child.terminate()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait_until_it_answers(home: Home, child: subprocess.Popen[bytes]) -> Runtime:
    """Wait until the yard has written its runtime file and its health check succeeds."""
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        runtime = home.runtime()
        if runtime is not None and runtime.pid == child.pid and _answers(runtime):
            return runtime
        if child.poll() is not None:
            raise Failure("The yard did not start.", why=f"It exited with {child.returncode}.")
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


def _print_addresses(home: Home, runtime: Runtime, as_json: JsonFields | None) -> None:
    if as_json:
        values = {name: getattr(runtime, name) for name in ("http", "https", "pid", "version", "home")}
        print_json(pascal_case_keys(values), as_json)
        return
    say(f"The yard is running at {runtime.http} and {runtime.https}")
    say(f"  home      {runtime.home}")
    say(f'  use it    eval "$({command_line("env", home)})"')
    if runtime.sign_in:
        say(f"  dashboard {urljoin(runtime.http, runtime.sign_in)}")
        say(f"            works once; {command_line('open', home)} makes another link")
    say(f"  stop it   {command_line('down', home)}")
    if runtime.reachable:
        say(f"  add users {command_line('user add NAME', home)}")
        say(f"  log in    trainyard login {runtime.reachable}, on another machine")
        say(f"            SHA-256 fingerprint {authority_fingerprint(home)}")
    other = access_from_environment(environment())
    if other is not None and other.url not in (runtime.http, runtime.https):
        say(f"Commands in this shell use another yard, {other.url}; `trainyard yards ls` shows which you know.")


@dataclass(frozen=True, slots=True)
class _ServerLog:
    """The open log of the server. `start` is the offset of the output of this start."""

    descriptor: int
    start: int


def _open_log(home: Home) -> _ServerLog:
    try:
        home.root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            if home.server_log.stat().st_size > MAX_LOG_BYTES:
                rotate_log(home.server_log)
        descriptor = open_log(home.server_log)
    except OSError as error:
        raise Failure(
            f"The home folder {home.root} cannot be written.",
            why=f"{error.strerror}.",
            next_step="trainyard up --detach --home DIR, with a writable folder",
        ) from error
    return _ServerLog(descriptor, os.fstat(descriptor).st_size)


def _last_log_lines(home: Home, start: int) -> list[str]:
    with home.server_log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-_TAIL_LINES:]

"""A real yard for tests: its own server process, on free ports of the loopback."""

import contextlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from trainyard.foundation.home import Credentials, Home, Runtime

START_TIMEOUT_S = 60.0

# The engine for the jobs of every yard: local (the default), loopback, or ray. The tests set ray together with the
# settings of a cluster that they start.
ENGINE_SWITCH = "TRAINYARD_TEST_ENGINE"
_SWITCHED = {"loopback": {"TRAINYARD_SERVER_ENGINES": "trainyard.testing.engines.loopback:open_sized"}}


@dataclass
class RunningYard:
    """A running yard. Its home stays after `stop` and `kill`, so that another yard can open it."""

    home: Home
    process: "subprocess.Popen[bytes]"
    runtime: Runtime

    @property
    def http(self) -> str:
        return self.runtime.http

    @property
    def https(self) -> str:
        return self.runtime.https

    @property
    def credentials(self) -> Credentials:
        return self.home.credentials()

    def environment(self, *, secure: bool = False) -> dict[str, str]:
        """Return the variables by which AWS clients find this yard, without the AWS settings of the machine."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        credentials = self.credentials
        return kept | {
            "AWS_ENDPOINT_URL": self.https if secure else self.http,
            "AWS_ACCESS_KEY_ID": credentials.access_key_id,
            "AWS_SECRET_ACCESS_KEY": credentials.secret_access_key,
            "AWS_DEFAULT_REGION": credentials.region,
            "AWS_REGION": credentials.region,
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CA_BUNDLE": str(self.home.ca_bundle),
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def stop(self) -> int:
        """Stop the yard as `trainyard down` does, and wait until it has ended."""
        self.process.terminate()
        return self.process.wait(timeout=30)

    def kill(self) -> None:
        """Kill the yard, as a crash would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=30)


def engine_of_tests() -> str:
    """Return the engine that runs the jobs of yards in tests, unless they set another."""
    return os.environ.get(ENGINE_SWITCH) or "local"


def start_yard(
    home: Path,
    *,
    environment: dict[str, str] | None = None,
    python: str = sys.executable,
    uid: int | None = None,
    port: int = 0,
) -> RunningYard:
    """Start a yard on a home folder and wait until it answers. It logs to `server.log` in the home.

    With a `uid`, which needs root, that user owns and runs it. Without a `port` it listens on free ports; on a cluster
    it keeps the port that it had before a kill, because the instances know that address.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    if engine_of_tests() != "local":
        port = port or _port_before(home) or port_to_keep()
    command = [python, "-m", "trainyard.server.main", "--home", str(home), "--port", str(port)]
    with Path(home / "server.log").open("ab") as journal:
        if uid is not None:
            os.chown(home, uid, uid)
            os.fchown(journal.fileno(), uid, uid)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=journal,
            stderr=journal,
            cwd=None if uid is None else "/",
            env=os.environ | _SWITCHED.get(engine_of_tests(), {}) | (environment or {}),
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
        )
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        runtime = Home(home).runtime()
        if runtime is not None and runtime.pid == process.pid and _answers(runtime):
            return RunningYard(Home(home), process, runtime)
        if process.poll() is not None:
            break
        time.sleep(0.02)
    process.kill()
    process.wait(timeout=30)
    raise AssertionError(f"the yard did not start:\n{(home / 'server.log').read_text()}")


@contextlib.contextmanager
def running_yard(home: Path, *, environment: dict[str, str] | None = None) -> Iterator[RunningYard]:
    """Run a yard for the length of a block."""
    yard = start_yard(home, environment=environment)
    try:
        yield yard
    finally:
        if yard.process.poll() is None:
            yard.stop()


def _port_before(home: Path) -> int:
    """Return the port of a yard that was killed, or 0 if there was none."""
    try:
        runtime = json.loads(Home(home).runtime_file.read_bytes())
    except FileNotFoundError:
        return 0
    return urlsplit(runtime["http"]).port or 0


def port_to_keep() -> int:
    """Return a port that is free, as is the next one, and that the kernel assigns to no connection meanwhile."""
    while True:
        # Below the ephemeral ports of the kernel.
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as next_one:
            one.bind(("127.0.0.1", port))
            next_one.bind(("127.0.0.1", port + 1))
            return port


def _answers(runtime: Runtime) -> bool:
    connection = http.client.HTTPConnection(urlsplit(runtime.http).netloc, timeout=5)
    try:
        connection.request("GET", "/_trainyard/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()

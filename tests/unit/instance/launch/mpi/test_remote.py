"""How the launchers of a job's hosts know each other."""

import socket
import sys

import pytest

from trainyard.foundation.interpreter import boot_code
from trainyard.foundation.jobs.launch_kinds import LaunchKind
from trainyard.instance.launch.mpi.remote import accept_request, launcher_port, receive, remote_shell_script, send
from trainyard.instance.launch.spec import LauncherSpec
from trainyard.instance.launch.variables import RankCluster

CLUSTER = RankCluster(
    LaunchKind.MPI, processes={"algo-1": 1, "algo-2": 1}, addresses={}, host="algo-1", port=20000, run="j-1"
)


def test_hosts_listen_in_the_ports_of_the_job() -> None:
    assert [launcher_port(CLUSTER, host) for host in CLUSTER.hosts] == [20001, 20002]


def test_messages_arrive_whole() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send(ours, {"start": "prted " + "x" * 10_000})
        assert len(receive(theirs)["start"]) == 10_006


@pytest.mark.parametrize(
    "sent", [b"", b"\x00\x00", b"\xff\xff\xff\xff", b"\x00\x00\x00\x02{]", b"\x00\x00\x00\x01[", b"\x00\x00\x00\x011"]
)
def test_an_invalid_message_ends_the_connection(sent: bytes) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            ours.sendall(sent)
        with pytest.raises(ConnectionError):
            receive(theirs)


def test_a_client_without_the_secret_starts_nothing() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send(ours, {"start": "rm", "proof": "guessed"})
        with pytest.raises(PermissionError):
            accept_request(theirs, "hush")


def test_the_agent_is_called_as_ssh_is() -> None:
    orders = LauncherSpec(CLUSTER, folder="/run", threads=1, python=sys.executable)
    script = remote_shell_script(orders, boot_code("trainyard.instance.launch.mpi.remote"), package="/a package")
    assert script.startswith(f"#!/bin/sh\nexec {sys.executable} -I -S -c ")
    assert script.endswith("""'/a package' "$@"\n""")

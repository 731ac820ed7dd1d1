"""Which mpirun there is, and how it is called."""

from pathlib import Path

import pytest

from trainyard.foundation.jobs.launch_kinds import LaunchKind
from trainyard.instance.launch.mpi.mpirun import UnsupportedMpirun, hosts_file, mpirun_command, read_version
from trainyard.instance.launch.variables import RankCluster

HOSTS = ("algo-1", "algo-2")


def cluster(*hosts: str) -> RankCluster:
    return RankCluster(
        LaunchKind.MPI,
        processes=dict.fromkeys(hosts, 2),
        addresses={host: host for host in hosts},
        host=hosts[0],
        port=20000,
        run="j-1",
    )


def words(version: int, *options: str, hosts: tuple[str, ...] = HOSTS, interface: str = "lo") -> str:
    made = mpirun_command(
        "/env/bin/mpirun",
        version,
        cluster=cluster(*hosts),
        interface=interface,
        options=list(options),
        hosts="/run/hosts",
        agent="/run/agent",
    )
    return " ".join(made)


def says(folder: Path, line: str) -> str:
    script = folder / "mpirun"
    script.write_text(f"#!/bin/sh\necho '{line}'\n")
    script.chmod(0o700)
    return str(script)


def test_open_mpi_4_and_5_are_known_by_what_they_say(tmp_path: Path) -> None:
    assert read_version(says(tmp_path, "mpirun (Open MPI) 4.1.8")) == 4
    assert read_version(says(tmp_path, "mpirun (Open MPI) 5.0.11")) == 5


@pytest.mark.parametrize("line", ["HYDRA build details:", "mpirun (Open MPI) 3.1.0", ""])
def test_others_are_not_served_and_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(UnsupportedMpirun, match="not Open MPI 4 or 5") as raised:
        read_version(says(tmp_path, line))
    assert line in str(raised.value)


def test_one_that_cannot_be_run_is_not_served_either(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedMpirun, match="does not report its version"):
        read_version(str(tmp_path / "mpirun"))


def test_hosts_have_as_many_slots_as_processes() -> None:
    assert hosts_file(cluster(*HOSTS)) == "algo-1 slots=2\nalgo-2 slots=2\n"


def test_open_mpi_4_reaches_other_hosts_by_our_agent_and_the_loopback() -> None:
    made = words(4)
    assert made.startswith("/env/bin/mpirun --hostfile /run/hosts -np 4 ")
    assert "--mca plm_rsh_agent /run/agent" in made
    assert "--mca oob_tcp_if_include lo" in made
    assert "--mca btl_tcp_if_include lo" in made
    assert "--mca orte_abort_on_non_zero_status 1" in made
    assert "--bind-to none --map-by slot" in made


def test_open_mpi_5_takes_the_loopback_for_messages_of_ranks_alone() -> None:
    assert "--prtemca plm_ssh_agent /run/agent" in words(5)
    assert "--mca btl_tcp_if_include lo" in words(5)
    assert "prte_if_include" not in words(5)
    assert "--prtemca prte_if_include eth0" in words(5, interface="eth0")
    assert "prte_if_include" not in words(5, hosts=("algo-1",), interface="eth0")


def test_options_of_the_job_win_and_lines_are_tagged_once() -> None:
    made = words(5, "-mca", "btl", "self,tcp", "--map-by", "node", "--tag-output", "--report-bindings")
    assert made.endswith("--bind-to none -mca btl self,tcp --map-by node --report-bindings")
    assert made.count(" btl ") == 1
    assert made.count("--map-by") == 1

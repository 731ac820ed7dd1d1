"""The version of an environment's mpirun, and the command line with which it starts the ranks of a job."""

import re
import subprocess
from itertools import pairwise

from trainyard.instance.launch.variables import RankCluster

_VERSION = re.compile(r"\(Open MPI\) (\d+)\.")
_SUPPORTED_VERSIONS = (4, 5)
_VERSION_TIMEOUT_S = 60.0
_PARAMETERS = ("mca", "gmca", "prtemca", "pmixmca")
# The launcher tags the lines itself.
_DROPPED_OPTIONS = ("tag-output",)


class UnsupportedMpirun(Exception):
    """This mpirun cannot start the ranks of a job; the message says why."""


def missing_mpirun(size: int) -> str:
    """Return why a program that calls MPI itself cannot run without mpirun as `size` processes."""
    return (
        f"The code imports mpi4py, with which each of its {size} processes would be alone: there is no mpirun of Open "
        "MPI to start them. Add openmpi to requirements.txt, or use torch.distributed or horovod.torch, which do not "
        "need it."
    )


def read_version(mpirun: str) -> int:
    """Return the major version of Open MPI; `UnsupportedMpirun` for other versions or implementations."""
    try:
        run = subprocess.run(
            [mpirun, "--version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnsupportedMpirun(f"it does not report its version: {error}") from error
    first_line = (run.stdout + run.stderr).strip().partition("\n")[0]
    found = _VERSION.search(first_line)
    if found is None or int(found[1]) not in _SUPPORTED_VERSIONS:
        raise UnsupportedMpirun(f'it is "{first_line}", not Open MPI {" or ".join(map(str, _SUPPORTED_VERSIONS))}')
    return int(found[1])


def hosts_file(cluster: RankCluster) -> str:
    """Return the text of a hostfile: the hosts in the order of their ranks, each with its number of slots."""
    return "".join(f"{host} slots={count}\n" for host, count in cluster.processes.items())


def mpirun_command(
    mpirun: str, version: int, *, cluster: RankCluster, interface: str, options: list[str], hosts: str, agent: str
) -> list[str]:
    """Return the command line up to the program. `hosts` is the hostfile, and `agent` starts a daemon on another host.

    The job's options win. No variables are passed on: the daemon of each host has those of its own host.
    """
    parameters = {
        **_daemons(version, agent, interface if len(cluster.hosts) > 1 else ""),
        **_messages(version, interface),
    }
    given = _names(options)
    defaults = {name: pair for name, pair in parameters.items() if name not in given}
    layout = {"bind-to": "none", "map-by": "slot"}
    return [
        mpirun,
        *("--hostfile", hosts, "-np", str(cluster.size), "--allow-run-as-root", "--leave-session-attached"),
        *(word for name, (kind, value) in defaults.items() for word in (f"--{kind}", name, value)),
        *(word for name, value in layout.items() if name not in given for word in (f"--{name}", value)),
        *(word for word in options if word.lstrip("-") not in _DROPPED_OPTIONS),
    ]


def _daemons(version: int, agent: str, interface: str) -> dict[str, tuple[str, str]]:
    """Return the parameters for how daemons start and reach each other, each with its kind and value.

    If there are several links, Open MPI 5 never uses the loopback for that, even if told to. Any other will do, since
    all hosts are on this machine.
    """
    if version == 4:
        found = {
            "plm": "rsh",
            "plm_rsh_agent": agent,
            "plm_rsh_no_tree_spawn": "1",
            "orte_abort_on_non_zero_status": "1",
        }
        found |= {"oob_tcp_if_include": interface} if interface else {}
        return {name: ("mca", value) for name, value in found.items()}
    found = {"plm": "ssh", "plm_ssh_agent": agent, "plm_ssh_no_tree_spawn": "1"}
    found |= {"prte_if_include": interface} if interface not in ("", "lo") else {}
    return {name: ("prtemca", value) for name, value in found.items()}


def _messages(version: int, interface: str) -> dict[str, tuple[str, str]]:
    """Return the parameters for how ranks reach each other: through memory on one host, else over TCP.

    A waiting rank yields to others, since all hosts share the cores of this machine, which mpirun does not know.
    Without that, an allreduce of 32 MB by 6 ranks on 2 cores took 27 s instead of 2.
    """
    found = {"pml": "ob1", "btl_tcp_if_include": interface, "mpi_yield_when_idle": "1"}
    found |= (
        {"btl": "self,vader,tcp", "btl_vader_single_copy_mechanism": "none"} if version == 4 else {"btl": "self,sm,tcp"}
    )
    return {name: ("mca", value) for name, value in found.items()}


def _names(options: list[str]) -> set[str]:
    """Return the names of the options, and of the parameters that they set."""
    names = {word.lstrip("-") for word in options if word.startswith("-")}
    return names | {
        name for word, name in pairwise(options) if word.startswith("-") and word.lstrip("-") in _PARAMETERS
    }

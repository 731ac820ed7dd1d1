"""Which mpirun an environment has, and the command line by which it starts the ranks of a job."""

import re
import subprocess
from itertools import pairwise

from trainyard.instance.launch.variables import Cluster

_VERSION = re.compile(r"\(Open MPI\) (\d+)\.")
_SERVED = (4, 5)
_VERSION_S = 60.0
_PARAMETERS = ("mca", "gmca", "prtemca", "pmixmca")
_OURS = ("tag-output",)  # lines are tagged by those who start the ranks


class NotServed(Exception):
    """It is not one that can start the ranks of a job; says which."""


def version_of(mpirun: str) -> int:
    """The main version of an Open MPI. NotServed when it is another, or something else."""
    try:
        run = subprocess.run([mpirun, "--version"], capture_output=True, text=True, timeout=_VERSION_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotServed(f"it cannot be asked for its version: {error}") from error
    said = (run.stdout + run.stderr).strip().partition("\n")[0]
    found = _VERSION.search(said)
    if found is None or int(found[1]) not in _SERVED:
        raise NotServed(f'it is "{said}", not Open MPI {" or ".join(map(str, _SERVED))}')
    return int(found[1])


def hosts_file(cluster: Cluster) -> str:
    """The hosts in the order of their ranks, each with how many of them it has."""
    return "".join(f"{host} slots={count}\n" for host, count in cluster.processes.items())


def command(
    mpirun: str, version: int, *, cluster: Cluster, interface: str, options: list[str], hosts: str, agent: str
) -> list[str]:
    """All but the program itself. `hosts` is the file of hosts, and `agent` what starts a daemon on another.

    What the options of the job say wins. No variable is handed on: the daemon of each host has those of its own host.
    """
    parameters = {
        **_daemons(version, agent, interface if len(cluster.hosts) > 1 else ""),
        **_messages(version, interface),
    }
    given = _names(options)
    chosen = {name: pair for name, pair in parameters.items() if name not in given}
    layout = {"bind-to": "none", "map-by": "slot"}
    return [
        mpirun,
        *("--hostfile", hosts, "-np", str(cluster.size), "--allow-run-as-root", "--leave-session-attached"),
        *(word for name, (kind, value) in chosen.items() for word in (f"--{kind}", name, value)),
        *(word for name, value in layout.items() if name not in given for word in (f"--{name}", value)),
        *(word for word in options if word.lstrip("-") not in _OURS),
    ]


def _daemons(version: int, agent: str, interface: str) -> dict[str, tuple[str, str]]:
    """How daemons are started and reach each other: each parameter by its kind and value.

    Of several links, Open MPI 5 never takes the loopback for that, even where it is told to. Any other will do, since
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
    """How ranks reach each other: by memory on one host, else by TCP.

    A rank that waits lets others run, since all hosts share the cores of this machine, of which mpirun knows nothing:
    else an allreduce of 32 MB by 6 ranks on 2 cores took 27 s instead of 2.
    """
    found = {"pml": "ob1", "btl_tcp_if_include": interface, "mpi_yield_when_idle": "1"}
    found |= (
        {"btl": "self,vader,tcp", "btl_vader_single_copy_mechanism": "none"} if version == 4 else {"btl": "self,sm,tcp"}
    )
    return {name: ("mca", value) for name, value in found.items()}


def _names(options: list[str]) -> set[str]:
    """The options, and the parameters that are set by them."""
    names = {word.lstrip("-") for word in options if word.startswith("-")}
    return names | {
        name for word, name in pairwise(options) if word.startswith("-") and word.lstrip("-") in _PARAMETERS
    }

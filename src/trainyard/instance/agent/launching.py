"""How the agent has the ranks of its instance run: what they are told, and what it is told of them."""

import hmac
from pathlib import Path

from trainyard.foundation.launch_kinds import LaunchKind
from trainyard.instance.agent.failure import CannotRun, FailureKind
from trainyard.instance.agent.hosts import addresses, network_interface
from trainyard.instance.compat import seen_package
from trainyard.instance.launch.main import BOOT
from trainyard.instance.launch.orders import LaunchOrders, MpiOrders, encode
from trainyard.instance.launch.variables import Cluster, rank_variables
from trainyard.instance.sandbox.contract import ML, Bind
from trainyard.instance.warm.frameworks import read_source
from trainyard.link.contract import InstanceSpec
from trainyard.link.folders import InstanceFolder

_REPORTS = "/run/trainyard/launch"
_CALLS_MPI = "mpi4py"


def reports_bind(folder: InstanceFolder) -> Bind:
    """What makes the folder of reports visible in a sandbox."""
    return Bind(folder.launch, _REPORTS)


def reports_folder(folder: InstanceFolder, seen_as: str) -> str:
    """The same folder as a program has it that sees the ml folder as `seen_as`."""
    return _REPORTS if seen_as == ML else str(folder.launch)


def address_of(spec: InstanceSpec, host: str, *, seen_as: str) -> str:
    """How a program that sees the ml folder as `seen_as` reaches a host: by its name only in a sandbox of its own."""
    return host if seen_as == ML else addresses(spec)[spec.hosts.index(host)]


def cluster_of(spec: InstanceSpec, *, seen_as: str) -> Cluster | None:
    """The ranks of the job; None when this instance runs one process that is not of them."""
    if spec.instance not in spec.launch.processes:
        return None
    return Cluster(
        LaunchKind(spec.launch.kind),
        processes=dict(spec.launch.processes),
        addresses={host: address_of(spec, host, seen_as=seen_as) for host in spec.launch.processes},
        host=spec.instance,
        port=spec.master_port,
        run=spec.job_id,
    )


def needs_launcher(spec: InstanceSpec) -> bool:
    """Whether the program is started by a launcher, and not as the only rank of its instance."""
    cluster = cluster_of(spec, seen_as=ML)
    return cluster is not None and (cluster.here > 1 or cluster.has_server or cluster.kind is LaunchKind.MPI)


def uses_mpirun(spec: InstanceSpec) -> bool:
    """Whether an mpirun starts the program, where its environment has one."""
    cluster = cluster_of(spec, seen_as=ML)
    return cluster is not None and cluster.kind is LaunchKind.MPI


def require_launchable(spec: InstanceSpec, code: Path) -> None:
    """CannotRun when the program calls MPI itself and there is no mpirun, so that each rank would find itself alone."""
    refusal = _refusal(spec, code)
    if refusal:
        raise CannotRun(refusal, FailureKind.USER_ERROR)


def launcher_words(
    spec: InstanceSpec,
    folder: InstanceFolder,
    *,
    seen_as: str,
    python: str,
    cpus: int,
    mpirun: str | None = None,
) -> list[str]:
    """What stands before the program's own words where a launcher starts it; nothing where none does.

    Without a sandbox all instances have the name of the machine, by which no mpirun can tell them apart.
    """
    cluster = cluster_of(spec, seen_as=seen_as)
    if cluster is None or not needs_launcher(spec):
        return []
    reports = reports_folder(folder, seen_as)
    threads = max(1, cpus // cluster.here)
    mpi = None
    if mpirun is not None and seen_as == ML:
        mpi = MpiOrders(
            mpirun,
            options=list(spec.launch.options),
            interface=network_interface(spec),
            refusal=_refusal(spec, folder.ml / "code"),
            failure=f"{seen_as}/output/failure",
        )
    elif mpirun is not None:
        require_launchable(spec, folder.ml / "code")
    orders = LaunchOrders(cluster, folder=reports, threads=threads, python=python, secret=_secret(spec), mpi=mpi)
    return [python, "-I", "-S", "-c", BOOT, seen_package(seen_as), encode(orders)]


def only_rank(spec: InstanceSpec) -> int | None:
    """The rank of the program where it is the only one of its instance."""
    cluster = cluster_of(spec, seen_as=ML)
    return None if cluster is None or needs_launcher(spec) else cluster.first_rank


def launch_variables(spec: InstanceSpec, *, seen_as: str) -> dict[str, str]:
    """What the launch adds to the environment of the program; where a launcher starts ranks, it adds theirs to that."""
    cluster = cluster_of(spec, seen_as=seen_as)
    if cluster is None:
        return {}
    return {**spec.launch.variables, **({} if needs_launcher(spec) else rank_variables(cluster, 0))}


def _refusal(spec: InstanceSpec, code: Path) -> str:
    """Why the ranks of a program cannot be started without an mpirun; nothing where they can."""
    cluster = cluster_of(spec, seen_as=ML)
    if cluster is None or cluster.kind is not LaunchKind.MPI or cluster.size == 1:
        return ""
    imported = read_source(code, spec.program.entry_point).imported
    if all(name.partition(".")[0] != _CALLS_MPI for name in imported):
        return ""
    return (
        f"The code imports {_CALLS_MPI}, in which each of its {cluster.size} processes would find itself alone: there "
        "is no mpirun of Open MPI to start them. Add openmpi to requirements.txt, or use torch.distributed or "
        "horovod.torch, which find all of them without."
    )


def _secret(spec: InstanceSpec) -> str:
    """What only the processes of this attempt know: made of its credentials, which all its instances are given."""
    key = spec.environment.get("AWS_SECRET_ACCESS_KEY", "")
    return hmac.new(key.encode(), f"launch of {spec.job_id}/{spec.attempt}".encode(), "sha256").hexdigest()

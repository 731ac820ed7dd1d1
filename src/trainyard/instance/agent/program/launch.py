"""Starts the ranks of an instance: their launcher, their variables, and the folder for the launcher's reports."""

import hmac
from pathlib import Path

from trainyard.foundation.interpreter import boot_code
from trainyard.foundation.jobs.launch_kinds import LaunchKind
from trainyard.instance.agent.program.hosts import addresses, network_interface
from trainyard.instance.agent.results.failure import CannotRun, FailureKind
from trainyard.instance.compat import package_path
from trainyard.instance.launch.mpi.mpirun import missing_mpirun
from trainyard.instance.launch.spec import LauncherSpec, MpirunSpec, encode_spec
from trainyard.instance.launch.variables import RankCluster, rank_variables
from trainyard.instance.sandbox.contract import ML, Bind
from trainyard.instance.warm.frameworks import summarize_code
from trainyard.link.contract import InstanceSpec
from trainyard.link.folders import InstanceFolder

_BOOT = boot_code("trainyard.instance.launch.main")
_REPORTS = "/run/trainyard/launch"
_MPI_PACKAGE = "mpi4py"


def reports_bind(folder: InstanceFolder) -> Bind:
    """The mount that shows the folder of reports in a sandbox."""
    return Bind(folder.launch, _REPORTS)


def reports_folder(folder: InstanceFolder, seen_as: str) -> str:
    """The path of that folder for a program that sees the ml folder as `seen_as`."""
    return _REPORTS if seen_as == ML else str(folder.launch)


def address_of(spec: InstanceSpec, host: str, *, seen_as: str) -> str:
    """The address of a host for a program that sees the ml folder as `seen_as`; its name works only in a sandbox."""
    return host if seen_as == ML else addresses(spec)[spec.hosts.index(host)]


def cluster_of(spec: InstanceSpec, *, seen_as: str) -> RankCluster | None:
    """The ranks of the job; None when this instance runs a single process without a rank."""
    if spec.instance not in spec.launch.processes:
        return None
    return RankCluster(
        LaunchKind(spec.launch.kind),
        processes=dict(spec.launch.processes),
        addresses={host: address_of(spec, host, seen_as=seen_as) for host in spec.launch.processes},
        host=spec.instance,
        port=spec.master_port,
        run=spec.job_id,
    )


def needs_launcher(spec: InstanceSpec) -> bool:
    """Whether a launcher starts the program, because it is not the only rank of its instance."""
    cluster = cluster_of(spec, seen_as=ML)
    return cluster is not None and (cluster.local_size > 1 or cluster.has_server or cluster.kind is LaunchKind.MPI)


def uses_mpirun(spec: InstanceSpec) -> bool:
    """Whether mpirun starts the program if its environment has one."""
    cluster = cluster_of(spec, seen_as=ML)
    return cluster is not None and cluster.kind is LaunchKind.MPI


def require_launchable(spec: InstanceSpec, code: Path) -> None:
    """Raise CannotRun when the program calls MPI itself but there is no mpirun, so that each rank would be alone."""
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
    """The words of the launcher before the program's own; empty when no launcher starts it.

    mpirun is used only in a sandbox: without one all instances have the name of the machine, so it cannot tell them
    apart.
    """
    cluster = cluster_of(spec, seen_as=seen_as)
    if cluster is None or not needs_launcher(spec):
        return []
    reports = reports_folder(folder, seen_as)
    threads = max(1, cpus // cluster.local_size)
    mpi = None
    if mpirun is not None and seen_as == ML:
        mpi = MpirunSpec(
            mpirun,
            options=list(spec.launch.options),
            interface=network_interface(spec),
            refusal=_refusal(spec, folder.ml / "code"),
            failure=f"{seen_as}/output/failure",
        )
    elif mpirun is not None:
        require_launchable(spec, folder.ml / "code")
    launcher = LauncherSpec(cluster, folder=reports, threads=threads, python=python, secret=_secret(spec), mpi=mpi)
    return [python, "-I", "-S", "-c", _BOOT, package_path(seen_as), encode_spec(launcher)]


def only_rank(spec: InstanceSpec) -> int | None:
    """The rank of the program if it is the only one of its instance; else None."""
    cluster = cluster_of(spec, seen_as=ML)
    return None if cluster is None or needs_launcher(spec) else cluster.first_rank


def launch_variables(spec: InstanceSpec, *, seen_as: str) -> dict[str, str]:
    """The variables for distributed training. A launcher adds those of each rank itself."""
    cluster = cluster_of(spec, seen_as=seen_as)
    if cluster is None:
        return {}
    return {**spec.launch.variables, **({} if needs_launcher(spec) else rank_variables(cluster, 0))}


def _refusal(spec: InstanceSpec, code: Path) -> str:
    """Why the ranks of a program cannot be started without mpirun; empty when they can."""
    cluster = cluster_of(spec, seen_as=ML)
    if cluster is None or cluster.kind is not LaunchKind.MPI or cluster.size == 1:
        return ""
    imported = summarize_code(code, spec.program.entry_point).imported
    if all(name.partition(".")[0] != _MPI_PACKAGE for name in imported):
        return ""
    return missing_mpirun(cluster.size)


def _secret(spec: InstanceSpec) -> str:
    """A secret of the processes of this attempt, derived from its credentials, which all its instances have."""
    key = spec.environment.get("AWS_SECRET_ACCESS_KEY", "")
    return hmac.new(key.encode(), f"launch of {spec.job_id}/{spec.attempt}".encode(), "sha256").hexdigest()

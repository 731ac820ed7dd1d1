"""Starts the ranks of a host for the MPI driver of the sagemaker SDK, in the same way as for estimators.

The agent does not know what the driver was told, so the specification comes from the variables that the driver reads.
The arguments are the folder of this package, the Python of the program, the script, and the script's own arguments.
"""

import hashlib
import hmac
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from itertools import pairwise

from trainyard.foundation.jobs.launch_kinds import LaunchKind
from trainyard.instance.launch import stacks
from trainyard.instance.launch.launcher import end_process
from trainyard.instance.launch.main import launch
from trainyard.instance.launch.mpi.mpirun import missing_mpirun
from trainyard.instance.launch.spec import LauncherSpec, MpirunSpec
from trainyard.instance.launch.variables import RankCluster

_FAILURE = "/opt/ml/output/failure"
_MAX_SOURCE_BYTES = 1 << 20
_IMPORT = re.compile(rb"^\s*(?:import|from)\s+mpi4py\b", re.MULTILINE)


def main() -> None:
    _, package, python, *program = sys.argv
    spec = make_spec(os.environ, python=python, mpirun=shutil.which("mpirun"), uses_mpi=_imports_mpi4py(os.getcwd()))
    if spec.mpi is not None and not spec.mpi.mpirun:
        _refuse(spec.mpi.refusal)
    os.environ.update(option_variables(_options(os.environ)))
    launch(spec, package, [python, *program])


def make_spec(environment: Mapping[str, str], *, python: str, mpirun: str | None, uses_mpi: bool) -> LauncherSpec:
    """Return what the launcher of this host runs. `uses_mpi` is whether the program calls MPI itself.

    Such a program needs mpirun; if there is none, the specification has an empty name for it, and says why.
    """
    hosts = json.loads(environment["SM_HOSTS"])
    count = _process_count(environment)
    cluster = RankCluster(
        LaunchKind.MPI,
        processes=dict.fromkeys(hosts, count),
        addresses={host: host for host in hosts},
        host=environment["SM_CURRENT_HOST"],
        port=int(environment["MASTER_PORT"]),
        run=environment["TRAINING_JOB_NAME"],
    )
    refusal = missing_mpirun(cluster.size) if uses_mpi and cluster.size > 1 else ""
    mpi = MpirunSpec(
        mpirun or "",
        options=_options(environment),
        interface=environment["SM_NETWORK_INTERFACE_NAME"],
        refusal=refusal,
        failure=_FAILURE,
    )
    return LauncherSpec(
        cluster,
        folder=os.path.dirname(environment[stacks.VARIABLE]),
        threads=max(1, int(environment["SM_NUM_CPUS"]) // count),
        python=python,
        secret=_secret(environment),
        mpi=mpi if mpirun is not None or refusal else None,
    )


def option_variables(options: list[str]) -> dict[str, str]:
    """Return the variables that options of mpirun set."""
    given = [value.partition("=") for option, value in pairwise(options) if option == "-x"]
    return {name: value for name, separator, value in given if separator}


def _process_count(environment: Mapping[str, str]) -> int:
    """Return how many ranks each host has; the driver decides by the same rules."""
    given = json.loads(environment["SM_DISTRIBUTED_CONFIG"]).get("process_count_per_node")
    return int(given or 0) or int(environment.get("SM_NUM_GPUS", 0)) or 1


def _options(environment: Mapping[str, str]) -> list[str]:
    return [str(each) for each in json.loads(environment["SM_DISTRIBUTED_CONFIG"]).get("mpi_additional_options") or []]


def _secret(environment: Mapping[str, str]) -> str:
    """Return a secret of the processes of this attempt, derived from its credentials, which all its instances have."""
    key = environment.get("AWS_SECRET_ACCESS_KEY", "")
    return hmac.new(key.encode(), f"launch of {environment['TRAINING_JOB_NAME']}".encode(), hashlib.sha256).hexdigest()


def _imports_mpi4py(folder: str) -> bool:
    """Return whether a Python file of the program's code imports mpi4py."""
    for above, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".py"):
                with open(os.path.join(above, name), "rb") as file:
                    if _IMPORT.search(file.read(_MAX_SOURCE_BYTES)):
                        return True
    return False


def _refuse(refusal: str) -> None:
    os.write(1, f"{refusal}\n".encode())
    with open(_FAILURE, "w", encoding="utf-8") as file:
        file.write(refusal)
    end_process(1)

"""Lets the drivers that the sagemaker SDK sends with a job start ranks here.

ModelTrainer and remote functions bring scripts of their own, which run torchrun or mpirun. They expect an instance of
its own machine: a port that nothing else uses, and root with an SSH daemon. Here, jobs share machines and are not root.
So two things change in the processes of these drivers, right at their start:

- torchrun gets the port that is reserved for the job, instead of 7777, which is the same for every job. It listens on
  all addresses of the machine, so that a second job could not start.
- The driver for MPI gets another module in place of the one that connects hosts by SSH. It starts the ranks as those of
  estimators are started.

A remote function with mpirun runs on one instance, which needs no SSH; several are refused.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType

_PORT_OPTIONS = ("--master_port", "--master-port")
_MPI_DRIVER = "/sm_drivers/distributed_drivers/mpi_driver.py"
# The module that connects hosts, as version 3 and version 2.257 import it.
_MPI_MODULES = ("distributed_drivers.mpi_utils", "mpi_utils")
_MPI_OF_REMOTE_FUNCTIONS = "/sagemaker_remote_function_bootstrap/mpi_utils_remote.py"
_FAILURE = "/opt/ml/output/failure"
_SEVERAL_HOSTS = (
    "RuntimeEnvironmentError: A remote function with use_mpirun needs SSH between its instances, which Trainyard does "
    "not offer. Use one instance, use_torchrun=True, or ModelTrainer(distributed=MPI()), which works with several."
)


def adapt_driver(environment: Mapping[str, str], boot: Callable[[str], list[str]]) -> None:
    """Adapt this process if it is one of the drivers, or the torchrun that they start.

    `boot` returns the command that runs the main function of a module of the agent's version of this package.
    """
    script = sys.argv[0] if sys.argv else ""
    if script.endswith(_MPI_DRIVER):
        sys.modules.update(dict.fromkeys(_MPI_MODULES, _mpi_module(environment, boot)))
    elif script.endswith(_MPI_OF_REMOTE_FUNCTIONS):
        _require_single_host(json.loads(environment["SM_HOSTS"]))
    # At this point, it is still unknown which module `python -m` runs.
    elif script == "-m" or script.endswith("/torchrun"):
        use_port_of_job(sys.argv, environment)


def use_port_of_job(arguments: list[str], environment: Mapping[str, str]) -> None:
    """Replace the fixed port of a driver in the arguments of torchrun by the job's, which all its instances know."""
    fixed, own = environment["SM_MASTER_PORT"], environment.get("MASTER_PORT")
    if own is None:
        return
    for place, word in enumerate(arguments):
        if word == fixed and place and arguments[place - 1] in _PORT_OPTIONS:
            arguments[place] = own
        elif word in [f"{option}={fixed}" for option in _PORT_OPTIONS]:
            arguments[place] = f"{word.partition('=')[0]}={own}"


def _mpi_module(environment: Mapping[str, str], boot: Callable[[str], list[str]]) -> ModuleType:
    """Return a module with the functions that the driver calls: on the first host the command is the launcher's.

    The launcher of the first host waits for the others, so nothing needs to be done before and after.
    """
    module = ModuleType(_MPI_MODULES[0])
    launcher = [*boot("trainyard.instance.launch.mpi.sdk_launch"), sys.executable, environment["SM_ENTRY_SCRIPT"]]

    def skip(*_: object) -> None:
        """Do nothing."""

    def run_launcher(*_: object) -> None:
        sys.stdout.flush()
        os.execv(launcher[0], launcher)

    def launcher_command(*_: object, **__: object) -> list[str]:
        return launcher

    for name in (
        "start_sshd_daemon",
        "bootstrap_master_node",
        "write_status_file_to_workers",
        "write_env_vars_to_file",
    ):
        setattr(module, name, skip)
    module.__dict__["bootstrap_worker_node"] = run_launcher
    module.__dict__["get_mpirun_command"] = launcher_command
    return module


def _require_single_host(hosts: list[str]) -> None:
    """End this process: there is nothing to connect on one host, and no way to connect several."""
    if len(hosts) > 1:
        os.write(2, (_SEVERAL_HOSTS + "\n").encode())
        with open(_FAILURE, "w", encoding="utf-8") as file:
            file.write(_SEVERAL_HOSTS)
    os._exit(0 if len(hosts) == 1 else 1)

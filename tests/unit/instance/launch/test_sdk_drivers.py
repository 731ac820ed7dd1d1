"""How drivers of the sagemaker SDK start ranks here. They are scripts of the job, run in processes of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.instance import compat
from trainyard.instance.launch.sdk_drivers import use_port_of_job

ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "PYTHONPATH": compat.compat_path("elsewhere"),
    "MASTER_PORT": "23456",
    "SM_MASTER_PORT": "7777",
    "SM_HOSTS": '["algo-1"]',
    "SM_ENTRY_SCRIPT": "train.py",
}
DRIVER = """
import sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent.parent))
from {module} import bootstrap_master_node, get_mpirun_command, start_sshd_daemon, write_env_vars_to_file
from {module} import write_status_file_to_workers
write_env_vars_to_file(), start_sshd_daemon(), bootstrap_master_node(["algo-2"])
print(*get_mpirun_command(host_count=2, host_list=[], num_processes=2, additional_options=[])[-2:])
write_status_file_to_workers(["algo-2"])
"""


def said(script: Path, *arguments: str, environment: dict[str, str] = ENVIRONMENT) -> str:
    run = [sys.executable, str(script), *arguments]
    return subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("module", ["distributed_drivers.mpi_utils", "mpi_utils"])
def test_the_driver_for_mpi_runs_the_launcher_instead_of_connecting_hosts_by_ssh(module: str, tmp_path: Path) -> None:
    driver = tmp_path / "sm_drivers" / "distributed_drivers" / "mpi_driver.py"
    driver.parent.mkdir(parents=True)
    (driver.parent / "__init__.py").touch()
    (driver.parent / "mpi_utils.py").write_text("import paramiko_that_is_not_there")
    driver.write_text(DRIVER.format(module=module))
    assert said(driver) == f"{sys.executable} train.py"


def test_torchrun_listens_on_the_port_of_the_job(tmp_path: Path) -> None:
    torchrun = tmp_path / "torchrun"
    torchrun.write_text("import sys; print(*sys.argv[1:])")
    assert said(torchrun, "--master_port", "7777", "x.py", "--size=7777") == "--master_port 23456 x.py --size=7777"
    assert said(torchrun, "--master-port=7777", "x.py") == "--master-port=23456 x.py"
    elsewhere = {name: value for name, value in ENVIRONMENT.items() if name != "SM_MASTER_PORT"}
    assert said(torchrun, "--master_port=7777", environment=elsewhere) == "--master_port=7777"


def test_a_port_of_the_users_own_choice_stays() -> None:
    words = ["torchrun", "--master_port=29500", "train.py"]
    use_port_of_job(words, ENVIRONMENT)
    assert words == ["torchrun", "--master_port=29500", "train.py"]
    use_port_of_job(words, {"SM_MASTER_PORT": "29500"})
    assert words == ["torchrun", "--master_port=29500", "train.py"]


def test_a_remote_function_with_mpirun_has_nothing_to_connect_on_one_instance(tmp_path: Path) -> None:
    script = tmp_path / "sagemaker_remote_function_bootstrap" / "mpi_utils_remote.py"
    script.parent.mkdir()
    script.write_text("print('connects by SSH')")
    assert said(script) == ""

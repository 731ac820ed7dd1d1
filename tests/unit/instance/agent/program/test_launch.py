"""How the agent starts the ranks of its instance."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.instance.agent.samples import SPEC, changed
from trainyard.instance.agent.program.launch import (
    address_of,
    launch_variables,
    launcher_words,
    needs_launcher,
    only_rank,
    require_launchable,
    uses_mpirun,
)
from trainyard.instance.agent.results.failure import CannotRun
from trainyard.instance.launch.spec import decode_spec
from trainyard.link.contract import InstanceSpec, LaunchSpec
from trainyard.link.folders import InstanceFolder

HOSTS = ("algo-1", "algo-2", "algo-3")
ML = "/opt/ml"
FOLDER = InstanceFolder(Path("/yard/algo-2"))


def spec(kind: str, *, each: int = 1, **members: Any) -> InstanceSpec:
    launch = LaunchSpec(kind, dict.fromkeys(HOSTS, each), variables={"NCCL_DEBUG": "INFO"})
    return changed(SPEC, **{"instance": "algo-2", "hosts": HOSTS, "master_port": 20000, "launch": launch} | members)


def test_the_only_rank_of_an_instance_needs_no_launcher() -> None:
    alone = spec("torchrun")
    assert not needs_launcher(alone)
    assert launcher_words(alone, FOLDER, seen_as=ML, python="/py", cpus=4) == []
    assert only_rank(alone) == 1
    told = launch_variables(alone, seen_as=ML)
    assert (told["RANK"], told["WORLD_SIZE"], told["NCCL_DEBUG"]) == ("1", "3", "INFO")


def test_several_ranks_mpi_and_servers_need_one() -> None:
    for launched in (spec("torchrun", each=2), spec("mpi"), spec("parameter_server"), spec("tensorflow_server")):
        assert needs_launcher(launched)
        assert only_rank(launched) is None
        assert "RANK" not in launch_variables(launched, seen_as=ML)
    assert not needs_launcher(spec("tensorflow_workers"))


def test_a_launcher_knows_where_to_report_and_how_many_threads_each_rank_has() -> None:
    *words, orders = launcher_words(spec("mpi", each=2), FOLDER, seen_as=ML, python="/py", cpus=5)
    assert words[:3] == ["/py", "-I", "-S"]
    read = decode_spec(orders)
    assert (read.folder, read.threads, read.cluster.first_rank) == ("/run/trainyard/launch", 2, 2)
    *_, orders = launcher_words(spec("mpi", each=8), FOLDER, seen_as="/yard/algo-2/ml", python="/py", cpus=5)
    assert (decode_spec(orders).folder, decode_spec(orders).threads) == ("/yard/algo-2/launch", 1)


@pytest.mark.parametrize("text", ["from mpi4py import MPI", "import os, mpi4py.MPI as MPI"])
def test_code_that_calls_mpi_itself_is_refused_where_each_rank_would_be_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.py").write_text(f"import torch\n{text}\n")
    with pytest.raises(CannotRun, match="mpi4py, with which each of its 6 processes would be alone"):
        require_launchable(spec("mpi", each=2), tmp_path)
    require_launchable(spec("torchrun", each=2), tmp_path)
    require_launchable(spec("mpi", launch=LaunchSpec("mpi", {"algo-2": 1})), tmp_path)
    (tmp_path / "train.py").write_text("import horovod.torch as hvd\n")
    require_launchable(spec("mpi", each=2), tmp_path)


def test_a_launcher_gets_the_mpirun_and_its_settings(tmp_path: Path) -> None:
    folder = InstanceFolder(tmp_path)
    (folder.ml / "code").mkdir(parents=True)
    (folder.ml / "code" / "train.py").write_text("import mpi4py")
    launch = LaunchSpec("mpi", dict.fromkeys(HOSTS, 2), options=["--map-by", "node"])
    given = spec("mpi", launch=launch, is_isolated=True)
    mpi = decode_spec(launcher_words(given, folder, seen_as=ML, python="/py", cpus=5, mpirun="/bin/mpirun")[-1]).mpi
    assert mpi is not None
    assert (mpi.mpirun, mpi.options, mpi.interface) == ("/bin/mpirun", ["--map-by", "node"], "eth0")
    assert "Add openmpi to requirements.txt" in mpi.refusal
    assert mpi.failure == "/opt/ml/output/failure"
    assert decode_spec(launcher_words(given, folder, seen_as=ML, python="/py", cpus=5)[-1]).mpi is None


def test_no_mpirun_is_used_where_all_instances_have_one_name(tmp_path: Path) -> None:
    folder = InstanceFolder(tmp_path)
    (folder.ml / "code").mkdir(parents=True)
    script = folder.ml / "code" / "train.py"
    script.write_text("import torch")
    given, seen_as = spec("mpi", each=2), str(folder.ml)
    words = launcher_words(given, folder, seen_as=seen_as, python="/py", cpus=5, mpirun="/bin/mpirun")
    assert decode_spec(words[-1]).mpi is None
    script.write_text("import mpi4py")
    with pytest.raises(CannotRun, match="would be alone"):
        launcher_words(given, folder, seen_as=seen_as, python="/py", cpus=5, mpirun="/bin/mpirun")


def test_only_jobs_by_mpi_use_an_mpirun() -> None:
    assert uses_mpirun(spec("mpi"))
    assert not uses_mpirun(spec("torchrun"))
    assert not uses_mpirun(spec("mpi", launch=LaunchSpec("mpi", {"algo-1": 1, "algo-3": 1})))


def test_an_instance_that_takes_no_part_runs_as_any_other() -> None:
    feeder = spec("mpi", launch=LaunchSpec("mpi", {"algo-1": 1, "algo-3": 1}))
    assert not needs_launcher(feeder)
    assert only_rank(feeder) is None
    assert launch_variables(feeder, seen_as=ML) == {}


def test_hosts_are_reached_by_their_addresses_where_their_names_do_not_resolve() -> None:
    assert address_of(spec("torchrun"), "algo-1", seen_as=ML) == "algo-1"
    assert address_of(spec("torchrun"), "algo-1", seen_as="/yard/algo-2/ml").startswith("127.")


def test_all_instances_of_an_attempt_share_a_secret_that_no_other_job_knows() -> None:
    def secret(**members: Any) -> str:
        given = spec("parameter_server", **members)
        return decode_spec(launcher_words(given, FOLDER, seen_as=ML, python="", cpus=1)[-1]).secret

    key = {"environment": {"AWS_SECRET_ACCESS_KEY": "hush"}}
    assert secret(**key) == secret(instance="algo-3", **key)
    assert len({secret(**key), secret(job_id="j-2", **key), secret(attempt=2, **key), secret()}) == 4

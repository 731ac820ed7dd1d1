from pathlib import Path

from tests.unit.instance.agent.samples import changed
from trainyard.link.folders import AttemptRef, InstanceFolder, InstanceRef, host_path


def test_an_instance_has_a_folder_of_its_own_in_that_of_its_attempt(tmp_path: Path) -> None:
    instance = InstanceRef(AttemptRef("j-1", 2), "algo-3")

    assert instance.folder(tmp_path).root == tmp_path / "j-1" / "2" / "algo-3"
    assert instance.attempt.folder(tmp_path) == tmp_path / "j-1" / "2"


def test_the_instances_of_an_attempt_are_the_folders_in_its_folder(tmp_path: Path) -> None:
    attempt = AttemptRef("j-1", 1)
    assert attempt.instances(tmp_path) == []

    for name in ("algo-2", "algo-1"):
        (tmp_path / "j-1" / "1" / name).mkdir(parents=True)
    (tmp_path / "j-1" / "1" / "ended").touch()

    folder = tmp_path / "j-1" / "1"
    assert attempt.instances(tmp_path) == [InstanceFolder(folder / "algo-1"), InstanceFolder(folder / "algo-2")]


def test_everything_of_an_instance_is_in_its_folder() -> None:
    folder = InstanceFolder(Path("/jobs/j-1/1/algo-1"))
    names = [name for name, member in vars(InstanceFolder).items() if isinstance(member, property)]

    paths = [getattr(folder, name) for name in names]

    assert {path.parent for path in paths} == {folder.root}
    assert len(set(paths)) == len(names)


def test_a_path_of_the_program_is_below_a_folder_that_it_cannot_replace(tmp_path: Path) -> None:
    folder, spec = InstanceFolder(tmp_path), changed(extra_paths=("/data/state", "/state"))
    assert host_path(folder, spec, "/opt/ml/output/tensorboard") == (folder.ml, "output/tensorboard")
    assert host_path(folder, spec, "/state") == (folder.scratch / "extra", "1")
    assert host_path(folder, spec, "/data/state/runs") == (folder.scratch / "extra", "0/runs")

"""The content of /opt/ml before a program starts."""

import json
import os
from pathlib import Path

import pytest

from tests.unit.instance.agent.samples import RECORDED, changed
from trainyard.foundation.confined import ConfinedFolder
from trainyard.instance.agent.layout import ProgramUser, create_layout
from trainyard.instance.agent.program.configuration import config_files
from trainyard.link.contract import ChannelSpec, DebuggerSpec, SyncSpec
from trainyard.link.folders import InstanceFolder, extra_folders

OTHER_USER = 50_001

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def test_the_folders_of_the_contract_are_there(tmp_path: Path) -> None:
    create_layout(InstanceFolder(tmp_path), changed(), ProgramUser(None))
    found = {str(path.relative_to(tmp_path / "ml")) for path in (tmp_path / "ml").rglob("*") if path.is_dir()}
    assert {"code", "model", "input/config", "input/data", "output/data", "output/intermediate"} <= found
    assert {"checkpoints", "output/metrics/sagemaker"} <= found


@pytest.mark.parametrize(("path", "is_there"), [("/state", False), ("/opt/ml/checkpoints", True)])
def test_a_job_whose_checkpoints_are_elsewhere_has_no_folder_for_them(
    tmp_path: Path, path: str, *, is_there: bool
) -> None:
    spec = changed(checkpoint=SyncSpec("s3://b/ck", path), extra_paths=("/state",))
    create_layout(InstanceFolder(tmp_path), spec, ProgramUser(None))
    assert (tmp_path / "ml" / "checkpoints").exists() == is_there


def test_each_file_channel_has_its_manifest_beside_it(tmp_path: Path) -> None:
    spec = changed(channels=[ChannelSpec("train", "File", "data", "set/", ["set/1"])])
    create_layout(InstanceFolder(tmp_path), spec, ProgramUser(None))
    assert (tmp_path / "ml/input/data/train-manifest").read_text() == "set/\ns3://data/set/1\n"


def test_the_configuration_files_hold_json(tmp_path: Path) -> None:
    spec = RECORDED["every kind of value"]
    create_layout(InstanceFolder(tmp_path), spec, ProgramUser(None))
    config = tmp_path / "ml/input/config"
    assert {file.name: json.loads(file.read_text()) for file in config.iterdir()} == config_files(spec)


def test_paths_outside_have_folders_of_their_own(tmp_path: Path) -> None:
    folder, spec = InstanceFolder(tmp_path), changed(extra_paths=("/state", "/data/state"))
    create_layout(folder, spec, ProgramUser(None))
    places = extra_folders(folder, spec)
    assert list(places) == ["/state", "/data/state"]
    assert len(set(places.values())) == 2
    assert all(place.is_dir() for place in places.values())


@needs_root
def test_everything_belongs_to_the_user_of_the_job(tmp_path: Path) -> None:
    folder, spec = InstanceFolder(tmp_path), changed(extra_paths=("/state",))
    create_layout(folder, spec, ProgramUser(OTHER_USER))
    made = [folder.ml, *folder.ml.rglob("*"), *extra_folders(folder, spec).values()]
    assert {path.stat().st_uid for path in made} == {OTHER_USER}
    assert {path.stat().st_gid for path in made} == {OTHER_USER}


@needs_root
def test_changing_the_owner_of_a_link_leaves_its_target(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "link").symlink_to(tmp_path / "kept")
    (tree / "around").symlink_to(tmp_path)
    with ConfinedFolder.open(tree) as opened:
        ProgramUser(OTHER_USER).give_tree(opened)
    assert (tree / "link").lstat().st_uid == OTHER_USER
    assert (tmp_path / "kept").stat().st_uid == 0
    assert tmp_path.stat().st_uid == 0


def test_the_owner_changes_only_for_a_root_yard() -> None:
    assert not ProgramUser(None).owns_no_objects
    assert not ProgramUser(os.geteuid()).owns_no_objects
    assert ProgramUser(OTHER_USER).owns_no_objects == (os.geteuid() == 0)


def test_only_a_job_with_a_debugger_has_a_folder_for_the_event_socket(tmp_path: Path) -> None:
    debugger = DebuggerSpec({}, SyncSpec("s3://yard/t", "/opt/ml/output/tensors"))
    for name, spec in (("with", changed(debugger=debugger)), ("without", changed())):
        (tmp_path / name).mkdir()
        create_layout(InstanceFolder(tmp_path / name), spec, ProgramUser(None))
    assert (tmp_path / "with" / "ml" / ".trainyard").is_dir()
    assert not (tmp_path / "without" / "ml" / ".trainyard").exists()

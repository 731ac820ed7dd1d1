"""What a program finds under /opt/ml before it starts."""

import json
import os
from pathlib import Path

import pytest

from tests.unit.instance.agent.samples import RECORDED, changed
from trainyard.foundation.confined import ConfinedFolder
from trainyard.instance.agent.configuration import config_files
from trainyard.instance.agent.layout import Owner, lay_out
from trainyard.link.contract import DebuggerSpec, SyncSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.places import extra_folders

OTHER_USER = 50_001

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def test_the_folders_of_the_contract_are_there(tmp_path: Path) -> None:
    lay_out(InstanceFolder(tmp_path), changed(), Owner(None))
    found = {str(path.relative_to(tmp_path / "ml")) for path in (tmp_path / "ml").rglob("*") if path.is_dir()}
    assert {"code", "model", "input/config", "input/data", "output/data", "output/intermediate"} <= found
    assert {"checkpoints", "output/metrics/sagemaker"} <= found


def test_the_configuration_files_hold_json(tmp_path: Path) -> None:
    spec = RECORDED["every kind of value"]
    lay_out(InstanceFolder(tmp_path), spec, Owner(None))
    config = tmp_path / "ml/input/config"
    assert {file.name: json.loads(file.read_text()) for file in config.iterdir()} == config_files(spec)


def test_paths_outside_have_folders_of_their_own(tmp_path: Path) -> None:
    folder, spec = InstanceFolder(tmp_path), changed(extra_paths=("/state", "/data/state"))
    lay_out(folder, spec, Owner(None))
    places = extra_folders(folder, spec)
    assert list(places) == ["/state", "/data/state"]
    assert len(set(places.values())) == 2
    assert all(place.is_dir() for place in places.values())


@needs_root
def test_everything_belongs_to_the_user_of_the_job(tmp_path: Path) -> None:
    folder, spec = InstanceFolder(tmp_path), changed(extra_paths=("/state",))
    lay_out(folder, spec, Owner(OTHER_USER))
    made = [folder.ml, *folder.ml.rglob("*"), *extra_folders(folder, spec).values()]
    assert {path.stat().st_uid for path in made} == {OTHER_USER}
    assert {path.stat().st_gid for path in made} == {OTHER_USER}


@needs_root
def test_giving_away_a_link_leaves_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "link").symlink_to(tmp_path / "kept")
    (tree / "around").symlink_to(tmp_path)
    with ConfinedFolder.open(tree) as opened:
        Owner(OTHER_USER).take_tree(opened)
    assert (tree / "link").lstat().st_uid == OTHER_USER
    assert (tmp_path / "kept").stat().st_uid == 0
    assert tmp_path.stat().st_uid == 0


def test_the_owner_is_another_only_where_root_gives_away() -> None:
    assert not Owner(None).is_another
    assert not Owner(os.geteuid()).is_another
    assert Owner(OTHER_USER).is_another == (os.geteuid() == 0)


def test_only_a_job_with_a_debugger_has_a_place_to_tell_its_agent_something(tmp_path: Path) -> None:
    debugger = DebuggerSpec({}, SyncSpec("s3://yard/t", "/opt/ml/output/tensors"))
    for name, spec in (("with", changed(debugger=debugger)), ("without", changed())):
        (tmp_path / name).mkdir()
        lay_out(InstanceFolder(tmp_path / name), spec, Owner(None))
    assert (tmp_path / "with" / "ml" / ".trainyard").is_dir()
    assert not (tmp_path / "without" / "ml" / ".trainyard").exists()

"""Where the paths lie that a program writes."""

from pathlib import Path

from tests.unit.instance.agent.samples import changed
from trainyard.link.folders import InstanceFolder
from trainyard.link.places import place_of


def test_a_path_of_the_program_lies_below_a_folder_that_it_cannot_replace(tmp_path: Path) -> None:
    folder, spec = InstanceFolder(tmp_path), changed(extra_paths=("/data/state", "/state"))
    assert place_of(folder, spec, "/opt/ml/output/tensorboard") == (folder.ml, "output/tensorboard")
    assert place_of(folder, spec, "/state") == (folder.scratch / "extra", "1")
    assert place_of(folder, spec, "/data/state/runs") == (folder.scratch / "extra", "0/runs")

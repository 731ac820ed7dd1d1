"""What a yard sends to nodes."""

import io
import tarfile
from pathlib import Path

import pytest

from tests.unit.disk_recorder import DiskRecorder, power_cuts
from trainyard.engines.local.code import MODULES
from trainyard.engines.ray.code_bundle import LIBRARIES, CodeBundle, ensure_code_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> CodeBundle:
    return ensure_code_bundle(tmp_path_factory.mktemp("bundles"))


def test_a_bundle_has_what_runs_on_nodes_and_nothing_of_the_server(bundle: CodeBundle) -> None:
    names = names_in(bundle.code())

    assert {"trainyard/engines/cluster/node_runner.py", "trainyard/instance/agent/main.py"} <= names
    assert not any(name.startswith(("trainyard/server", "trainyard/wire", "trainyard/cli")) for name in names)
    assert not any("__pycache__" in name for name in names)


def test_a_bundle_has_each_library_with_its_modules_and_its_name(bundle: CodeBundle) -> None:
    libraries = bundle.libraries()

    assert {name.replace("_", "-") for name in libraries} == set(LIBRARIES)
    assert "obstore/__init__.py" in names_in(libraries["obstore"])
    assert any(name.endswith(".dist-info/METADATA") for name in names_in(libraries["regex"]))


def test_the_same_code_is_packed_once(bundle: CodeBundle) -> None:
    before = bundle.folder.stat().st_mtime_ns

    again = ensure_code_bundle(bundle.folder.parent)

    assert again == bundle
    assert again.folder.stat().st_mtime_ns == before


def test_other_code_is_another_bundle_and_the_old_one_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard.engines.ray.code_bundle.LIBRARIES", ())  # which take their time
    package = a_package(tmp_path / "trainyard")
    old = ensure_code_bundle(tmp_path / "bundles", package)
    (package / "engines" / "new.py").write_text("")

    new = ensure_code_bundle(tmp_path / "bundles", package)

    assert new.digest != old.digest
    assert "trainyard/engines/new.py" in names_in(new.code())
    assert [path.name for path in (tmp_path / "bundles").iterdir()] == [new.digest]


def test_a_power_cut_leaves_a_whole_bundle_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainyard.engines.ray.code_bundle.LIBRARIES", ())  # which take their time
    disk = tmp_path / "disk"
    (disk / "bundles").mkdir(parents=True)
    recorder = DiskRecorder(disk)

    bundle = recorder.run(lambda: ensure_code_bundle(disk / "bundles", a_package(tmp_path / "trainyard")))

    for call, left in power_cuts(recorder, tmp_path):
        found = CodeBundle(left / "bundles" / bundle.digest)
        assert not found.folder.exists() or found.code() == bundle.code(), call


def a_package(folder: Path) -> Path:
    (folder / "engines").mkdir(parents=True)
    for name in (*MODULES, "engines/__init__.py"):
        (folder / name).write_text("")
    return folder


def names_in(archive: bytes) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return set(opened.getnames())

"""Files that are fetched for the rules."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.instance.agent.samples import changed, make_bucket, put_object
from trainyard.instance.agent.watch.debugger_files import fetch_other_runs, fetch_rule_files, other_runs, rule_file
from trainyard.link.contract import DebuggerSpec, RuleSpec, SyncSpec
from trainyard.objects.filesystem import FilesystemObjects


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FilesystemObjects]:
    with closing(FilesystemObjects(tmp_path / "objects")) as made:
        make_bucket(made)
        (tmp_path / "ml").mkdir()
        yield made


def test_each_rule_gets_its_own_file_and_a_missing_one_is_reported(store: FilesystemObjects, tmp_path: Path) -> None:
    put_object(store, "rules/mine.py", b"class Mine: ...")
    rules = (
        RuleSpec("../../evil", "Mine", source="s3://yard/rules/mine.py"),
        RuleSpec("ours", "AllZero"),
        RuleSpec("gone", "Mine", source="s3://yard/rules/gone.py"),
    )
    spec = changed(debugger=DebuggerSpec({}, SyncSpec("s3://yard/t", "/opt/ml/output/tensors"), rules))
    missing = fetch_rule_files(store, spec, tmp_path / "ml", check=lambda: None)
    assert list(missing) == ["gone"]
    assert "s3://yard/rules/gone.py" in missing["gone"]
    place = Path(rule_file(spec, rules[0], seen_as=str(tmp_path / "ml")))
    assert place.read_text() == "class Mine: ..."
    assert place.is_relative_to(tmp_path / "ml")
    assert rule_file(spec, rules[0], seen_as="/opt/ml").startswith("/opt/ml/.trainyard/rules/")


def test_the_step_records_of_another_run_are_fetched(store: FilesystemObjects, tmp_path: Path) -> None:
    for key in ("worker_0.manifest.json", "steps/worker_0/1.arrows", "values/worker_0/1.safetensors", "ended.json"):
        put_object(store, f"old/debug-output/{key}", key.encode())
    rules = (RuleSpec("same", "SimilarAcrossRuns", {"other_trials": "s3://yard/old/debug-output/,s3://yard/none"}),)
    spec = changed(debugger=DebuggerSpec({}, SyncSpec("s3://yard/t", "/opt/ml/output/tensors"), rules))
    fetch_other_runs(store, spec, tmp_path / "ml", check=lambda: None)
    old, none = other_runs(spec, seen_as=str(tmp_path / "ml")).values()
    found = {str(path.relative_to(old)) for path in Path(old).rglob("*") if path.is_file()}
    assert found == {"worker_0.manifest.json", "steps/worker_0/1.arrows", "ended.json"}
    assert list(Path(none).iterdir()) == []

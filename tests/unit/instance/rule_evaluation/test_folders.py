"""The tensors folders of several instances as one."""

from pathlib import Path

from trainyard.instance.rule_evaluation.folders import JoinedFolders


def test_joined_folders_have_what_lies_in_any_of_them(tmp_path: Path) -> None:
    for name, text in (("one", "a"), ("two", "bb")):
        (tmp_path / name / "steps").mkdir(parents=True)
        (tmp_path / name / "steps" / name).write_text(text)
        (tmp_path / name / "both").write_text(text)
    joined = JoinedFolders([tmp_path / "one", tmp_path / "two"])
    assert [(entry.name, entry.size) for entry in joined.entries("steps")] == [("one", 1), ("two", 2)]
    assert joined.folders() == ["steps"]
    assert joined.read("steps/two") == b"bb"
    assert joined.read("both") == b"a"
    assert joined.size("steps/two") == 2

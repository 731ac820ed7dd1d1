import subprocess
from pathlib import Path

from trainyard._sdk.training.git_state import COMMIT_TAG, REPOSITORY_TAG, git_tags


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_folder_outside_of_a_work_tree_has_no_commit(tmp_path: Path) -> None:
    assert git_tags(tmp_path) == {}


def test_the_commit_the_changes_and_the_repository_are_named_without_a_password(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert git_tags(tmp_path) == {}
    (tmp_path / "train.py").write_text("1")
    git(tmp_path, "add", "train.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "untracked").mkdir()
    assert git_tags(tmp_path / "untracked") == {COMMIT_TAG: commit}
    git(tmp_path, "remote", "add", "origin", "https://anna:secret@host/repo.git")
    (tmp_path / "train.py").write_text("2")
    assert git_tags(tmp_path) == {COMMIT_TAG: f"{commit}-dirty", REPOSITORY_TAG: "https://host/repo.git"}

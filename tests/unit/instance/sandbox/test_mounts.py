from pathlib import Path

import pytest

from trainyard.instance.sandbox import mounts


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host without the folder that shall be shown. Mounting takes namespaces, so the kernel's refusal is played."""
    monkeypatch.setattr(mounts, "HOST", str(tmp_path / "host"))

    def refuse(source: str, target: str, **_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", f"mount {source} on {target}")

    monkeypatch.setattr(mounts, "mount", refuse)
    return tmp_path


def test_a_folder_of_the_host_that_went_while_the_view_was_made_is_left_out(root: Path) -> None:
    place = str(root / "opt" / "passing")
    mounts.bind("read_only", place, place)


def test_what_a_program_needs_elsewhere_is_missed_when_it_is_gone(root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        mounts.bind("read_only", str(root / "gone"), str(root / "shown"))


def test_what_is_there_and_cannot_be_shown_is_told(root: Path) -> None:
    place = str(root / "opt")
    (Path(mounts.HOST) / place[1:]).mkdir(parents=True)
    with pytest.raises(FileNotFoundError):
        mounts.bind("read_only", place, place)

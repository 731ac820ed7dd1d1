from pathlib import Path

import pytest

from trainyard.instance.sandbox import cgroups


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("memory.events", "low 0\nhigh 0\nmax 12\noom 2\noom_kill 2\noom_group_kill 0\n"),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
    ],
)
def test_kills_for_lack_of_memory_are_counted_in_both_versions(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text)
    assert cgroups.oom_kill_count([str(tmp_path / "other"), str(tmp_path)]) == 2


def test_a_group_without_memory_control_has_no_kills(tmp_path: Path) -> None:
    assert cgroups.oom_kill_count([str(tmp_path)]) == 0


def test_members_of_several_groups_are_counted_once(tmp_path: Path) -> None:
    for name in ("cpu", "memory"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").write_text("7\n8\n")
    assert cgroups.member_pids([str(tmp_path / "cpu"), str(tmp_path / "memory")]) == {7, 8}


def test_removing_what_is_gone_succeeds(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    assert cgroups.remove_cgroups([str(tmp_path / "one"), str(tmp_path / "gone")], timeout_s=0)
    assert not (tmp_path / "one").exists()


def test_a_group_that_is_not_empty_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "one/child").mkdir(parents=True)
    assert not cgroups.remove_cgroups([str(tmp_path / "one")], timeout_s=0)


def test_a_group_with_nobody_in_it_is_empty_at_once(tmp_path: Path) -> None:
    assert cgroups.kill_members([str(tmp_path)], timeout_s=0)

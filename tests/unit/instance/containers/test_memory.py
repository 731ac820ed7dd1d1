from pathlib import Path

from trainyard.instance.containers.memory import OomWatch
from trainyard.testing.eventually import eventually


def test_the_group_of_a_container_is_found_once_it_has_an_id_and_is_watched(tmp_path: Path) -> None:
    group = tmp_path / "groups" / "libpod_parent" / "libpod-abc123"
    group.mkdir(parents=True)
    (group / "memory.oom_control").write_text("oom_kill 0\n")
    watch = OomWatch(tmp_path / "id", groups=tmp_path / "groups")

    watch.start()
    (tmp_path / "id").write_text("abc123")

    events = eventually(lambda: asked(group))
    assert len(events.split()) == 2
    assert not watch.has_seen_oom


def test_without_groups_of_version_1_nothing_is_watched(tmp_path: Path) -> None:
    watch = OomWatch(tmp_path / "id", groups=tmp_path / "none")

    watch.start()

    assert not watch.has_seen_oom


def asked(group: Path) -> str:
    """What the kernel would be asked: the descriptors of the event and of the file that it is about."""
    file = group / "cgroup.event_control"
    return file.read_text() if file.exists() else ""

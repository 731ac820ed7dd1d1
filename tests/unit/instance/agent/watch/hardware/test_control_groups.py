"""Control groups are found as kernels and containers show them, in both versions."""

from pathlib import Path

from trainyard.instance.agent.watch.hardware.control_groups import ControlGroups

V2 = "30 25 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
)
IN_CONTAINER = "30 25 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"


def put(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_a_limit_of_any_group_above_counts(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/mountinfo", V2)
    put(tmp_path, "proc/7/cgroup", "0::/yard/trainyard-job\n")
    put(tmp_path, "sys/fs/cgroup/yard/cpu.max", "150000 100000\n")
    put(tmp_path, "sys/fs/cgroup/yard/trainyard-job/cpu.max", "max 100000\n")
    put(tmp_path, "sys/fs/cgroup/yard/memory.max", "max\n")
    put(tmp_path, "sys/fs/cgroup/yard/trainyard-job/memory.max", "1000000\n")

    groups = ControlGroups.of(tmp_path, 7)

    assert groups.core_limit() == 1.5
    assert groups.memory_limit() == 1_000_000


def test_version_1_has_a_hierarchy_for_each_controller(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/mountinfo", V1)
    put(tmp_path, "proc/7/cgroup", "4:memory:/trainyard-job\n1:cpu,cpuacct:/trainyard-job\n0::/trainyard-job\n")
    cpu = "sys/fs/cgroup/cpu,cpuacct/trainyard-job"
    put(tmp_path, f"{cpu}/cpu.cfs_quota_us", "50000\n")
    put(tmp_path, f"{cpu}/cpu.cfs_period_us", "100000\n")
    put(tmp_path, f"{cpu}/cpuacct.usage", "1\n")
    put(tmp_path, "sys/fs/cgroup/memory/trainyard-job/memory.limit_in_bytes", "9223372036854771712\n")

    groups = ControlGroups.of(tmp_path, 7)

    assert groups.core_limit() == 0.5
    assert groups.memory_limit() is None
    found = groups.group_with("cpuacct", "cpuacct.usage")
    assert found is not None
    assert found.folder == tmp_path / cpu


def test_in_a_container_paths_begin_at_the_group_that_is_mounted(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/mountinfo", IN_CONTAINER)
    put(tmp_path, "proc/7/cgroup", "0::/docker/abc/trainyard-job\n")
    put(tmp_path, "sys/fs/cgroup/trainyard-job/cpu.max", "200000 100000\n")
    assert ControlGroups.of(tmp_path, 7).core_limit() == 2.0


def test_a_group_that_is_not_mounted_is_the_nearest_that_is(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/mountinfo", V2)
    put(tmp_path, "proc/7/cgroup", "0::/elsewhere\n")
    put(tmp_path, "sys/fs/cgroup/memory.max", "5000\n")
    assert ControlGroups.of(tmp_path, 7).memory_limit() == 5000


def test_groups_shared_with_another_process_are_not_about_this_one(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/mountinfo", V1)
    put(tmp_path, "proc/self/cgroup", "4:memory:/yard\n1:cpu,cpuacct:/yard\n")
    put(tmp_path, "proc/7/cgroup", "4:memory:/yard/trainyard-job\n1:cpu,cpuacct:/yard\n")
    for folder in ("memory/yard/trainyard-job", "cpu,cpuacct/yard"):
        (tmp_path / "sys/fs/cgroup" / folder).mkdir(parents=True)

    own = ControlGroups.of(tmp_path, 7).without(ControlGroups.of(tmp_path, "self"))

    assert list(own.by_controller) == ["memory"]


def test_a_machine_without_control_groups_has_none(tmp_path: Path) -> None:
    groups = ControlGroups.of(tmp_path, 7)
    assert (groups.by_controller, groups.core_limit(), groups.memory_limit()) == ({}, None, None)

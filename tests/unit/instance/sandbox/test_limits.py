from pathlib import Path
from typing import Any

import pytest

from trainyard.foundation.errors import Conflict
from trainyard.instance.sandbox.contract import Isolation
from trainyard.instance.sandbox.limits import (
    CgroupHierarchy,
    CgroupLimits,
    VisibleCgroup,
    apply_fallbacks,
    cgroup_folders,
    make_cgroups,
    own_hierarchies,
)
from trainyard.link.contract import LimitSpec

ALL = LimitSpec(cpus=1.5, memory_bytes=1 << 30, processes=100)


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def describe(proc: Path, *, mounts: list[str], memberships: list[str]) -> Path:
    """Files as the kernel has them under /proc/self; the numbers before a mount's target do not matter here."""
    write(proc / "mountinfo", "".join(f"1 2 0:3 / {mount}\n" for mount in mounts))
    write(proc / "cgroup", "".join(f"{line}\n" for line in memberships))
    return proc


class TestOwnHierarchies:
    def test_of_v1_the_group_of_each_controller_is_found(self, tmp_path: Path) -> None:
        (tmp_path / "memory/yard").mkdir(parents=True)
        (tmp_path / "cpu").mkdir()
        (tmp_path / "freezer").mkdir()
        proc = describe(
            tmp_path / "proc",
            mounts=[
                f"{tmp_path}/memory rw,relatime - cgroup cgroup rw,memory",
                f"{tmp_path}/cpu rw,relatime - cgroup cgroup rw,cpuacct,cpu,release_agent=/x",
                f"{tmp_path}/freezer rw,relatime - cgroup cgroup rw,freezer",
            ],
            memberships=["3:memory:/yard", "2:cpu,cpuacct:/", "1:freezer:/"],
        )
        assert own_hierarchies(proc) == [
            CgroupHierarchy(
                tmp_path / "memory/yard",
                tmp_path / "memory/yard",
                frozenset({"memory"}),
                is_v2=False,
                top=tmp_path / "memory",
            ),
            CgroupHierarchy(tmp_path / "cpu", tmp_path / "cpu", frozenset({"cpu"}), is_v2=False, top=tmp_path / "cpu"),
        ]

    def test_of_v2_the_nearest_group_that_hands_controllers_down_is_taken(self, tmp_path: Path) -> None:
        own = tmp_path / "slice/service"
        write(own / "cgroup.controllers", "cpu memory pids")
        write(tmp_path / "slice/cgroup.subtree_control", "cpu memory pids")
        write(tmp_path / "slice/cgroup.procs")
        proc = describe(
            tmp_path / "proc", mounts=[f"{tmp_path} rw - cgroup2 cgroup2 rw"], memberships=["0::/slice/service"]
        )
        (found,) = own_hierarchies(proc)
        assert (found.own, found.parent) == (own, tmp_path / "slice")
        assert found.controllers == {"cpu", "memory", "pids"}

    def test_of_v2_a_group_is_asked_for_what_it_does_not_hand_down_yet(self, tmp_path: Path) -> None:
        write(tmp_path / "service/cgroup.controllers", "memory")
        write(tmp_path / "cgroup.controllers", "cpu io memory pids")
        write(tmp_path / "cgroup.subtree_control", "memory")
        write(tmp_path / "cgroup.procs")
        proc = describe(tmp_path / "proc", mounts=[f"{tmp_path} rw - cgroup2 cgroup2 rw"], memberships=["0::/service"])
        (found,) = own_hierarchies(proc)
        assert (found.parent, found.controllers) == (tmp_path, frozenset({"cpu", "memory", "pids"}))
        assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory +cpu +pids"

    def test_v2_comes_first_and_counts_even_without_controllers(self, tmp_path: Path) -> None:
        (tmp_path / "unified").mkdir()
        (tmp_path / "pids").mkdir()
        proc = describe(
            tmp_path / "proc",
            mounts=[f"{tmp_path}/pids rw - cgroup cgroup rw,pids", f"{tmp_path}/unified rw - cgroup2 cgroup2 rw"],
            memberships=["8:pids:/", "0::/"],
        )
        assert [(each.is_v2, sorted(each.controllers)) for each in own_hierarchies(proc)] == [
            (True, []),
            (False, ["pids"]),
        ]

    def test_a_path_that_is_outside_of_the_container_means_the_top(self, tmp_path: Path) -> None:
        (tmp_path / "memory").mkdir()
        proc = describe(
            tmp_path / "proc",
            mounts=[f"{tmp_path}/memory rw - cgroup cgroup rw,memory"],
            memberships=["1:memory:/docker/0123"],
        )
        assert own_hierarchies(proc)[0].own == tmp_path / "memory"

    def test_a_machine_without_control_groups_has_none(self, tmp_path: Path) -> None:
        proc = describe(tmp_path / "proc", mounts=["/ rw - ext4 /dev/sda rw"], memberships=["0::/"])
        assert own_hierarchies(proc) == []


class TestMakeGroups:
    def test_limits_are_written_as_v2_wants_them(self, tmp_path: Path) -> None:
        hierarchy = CgroupHierarchy(tmp_path, tmp_path, frozenset({"cpu", "memory", "pids"}), is_v2=True, top=tmp_path)
        limited = make_cgroups("one", ALL, [hierarchy])
        folder = tmp_path / "trainyard-one"
        assert (limited.folders, limited.not_enforced) == ([str(folder)], [])
        assert (folder / "memory.max").read_text() == str(1 << 30)
        assert (folder / "cpu.max").read_text() == "150000 100000"
        assert (folder / "pids.max").read_text() == "102"  # with supervisor and init

    @pytest.mark.parametrize(
        ("is_v2", "name", "most"),
        [(True, "memory.swap.max", "0"), (False, "memory.memsw.limit_in_bytes", str(1 << 30))],
    )
    def test_a_program_does_not_get_around_its_memory_by_swap(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_v2: bool, name: str, most: str
    ) -> None:
        mkdir = Path.mkdir

        def mkdir_as_a_kernel_with_swap(folder: Path, *arguments: Any, **options: Any) -> None:
            mkdir(folder, *arguments, **options)
            (folder / name).write_text("max")

        monkeypatch.setattr(Path, "mkdir", mkdir_as_a_kernel_with_swap)
        make_cgroups(
            "one", ALL, [CgroupHierarchy(tmp_path, tmp_path, frozenset({"memory"}), is_v2=is_v2, top=tmp_path)]
        )
        assert (tmp_path / "trainyard-one" / name).read_text() == most

    def test_limits_are_written_as_v1_wants_them(self, tmp_path: Path) -> None:
        hierarchies = [
            CgroupHierarchy(tmp_path / name, tmp_path / name, frozenset({name}), is_v2=False, top=tmp_path)
            for name in ("memory", "cpu")
        ]
        for hierarchy in hierarchies:
            hierarchy.parent.mkdir()
        limited = make_cgroups("one", ALL, hierarchies)
        assert (tmp_path / "memory/trainyard-one/memory.limit_in_bytes").read_text() == str(1 << 30)
        assert (tmp_path / "cpu/trainyard-one/cpu.cfs_quota_us").read_text() == "150000"
        assert ["100 processes" in sentence for sentence in limited.not_enforced] == [True]

    def test_without_hierarchies_everything_that_is_limited_is_admitted(self) -> None:
        assert len(make_cgroups("one", ALL, []).not_enforced) == 3
        assert make_cgroups("one", LimitSpec(), []).not_enforced == []

    def test_without_limits_a_job_stays_below_the_group_of_the_yard(self, tmp_path: Path) -> None:
        (tmp_path / "yard").mkdir()
        hierarchy = CgroupHierarchy(tmp_path / "yard", tmp_path, frozenset({"memory"}), is_v2=True, top=tmp_path)
        assert make_cgroups("one", LimitSpec(), [hierarchy]).folders == [str(tmp_path / "yard/trainyard-one")]
        assert make_cgroups("two", ALL, [hierarchy]).folders == [str(tmp_path / "trainyard-two")]
        assert set(cgroup_folders("one", [hierarchy])) == {tmp_path / "trainyard-one", tmp_path / "yard/trainyard-one"}

    def test_a_name_whose_group_has_members_is_running(self, tmp_path: Path) -> None:
        write(tmp_path / "trainyard-one/cgroup.procs", "4711\n")
        with pytest.raises(Conflict, match="already running"):
            make_cgroups("one", ALL, [CgroupHierarchy(tmp_path, tmp_path, frozenset(), is_v2=True, top=tmp_path)])


class TestHoldOtherwise:
    def test_memory_is_watched_where_no_group_holds_it(self) -> None:
        limited = make_cgroups("one", ALL, [])
        apply_fallbacks(limited, ALL, Isolation.PROCESS_GROUP)
        assert (limited.watchdog_memory_bytes, limited.max_processes) == (1 << 30, 0)
        assert len(limited.not_enforced) == 3

    def test_what_a_group_holds_needs_nothing_else(self) -> None:
        limited = CgroupLimits(cgroups=[VisibleCgroup("/group", "/")])
        apply_fallbacks(limited, ALL, Isolation.NAMESPACES)
        assert (limited.watchdog_memory_bytes, limited.max_processes) == (0, 0)

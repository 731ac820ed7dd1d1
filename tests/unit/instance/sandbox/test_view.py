import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.instance.sandbox.contract import Bind, CopyOnWrite, SandboxNetwork, SandboxRequest
from trainyard.instance.sandbox.limits import VisibleCgroup
from trainyard.instance.sandbox.spec import Step
from trainyard.instance.sandbox.view import plan_view, visible_paths
from trainyard.link.contract import LimitSpec


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small host: a merged /usr, something in /opt, devices, and a home folder with an installation of Python."""
    root = tmp_path / "host"
    for folder in (
        "usr/bin",
        "etc",
        "sys",
        "opt/tools",
        "opt/ml/leftover",
        "dev",
        "home/me/python/lib/python3.11",
        "srv",
    ):
        (root / folder).mkdir(parents=True)
    for file in ("etc/hosts", "etc/passwd", "etc/nsswitch.conf", "dev/null", "dev/nvidia0", "dev/nvidiactl", "dev/sda"):
        (root / file).touch()
    (root / "bin").symlink_to("usr/bin")
    (root / "opt/latest").symlink_to("tools")
    (root / "home/me/python/lib/python3.11/os.py").touch()
    (root / "home/me/python/bin").mkdir()
    (root / "home/me/python/bin/python").touch()
    return root


@pytest.fixture
def request_of_a_job(root: Path) -> SandboxRequest:
    return SandboxRequest(
        name="one",
        argv=["python"],
        environment={},
        ml_folder=root / "home/me/yard/ml",
        scratch_folder=root / "home/me/yard/scratch",
        interpreter=root / "home/me/python/bin/python",
    )


def plan(request: SandboxRequest, root: Path) -> list[Step]:
    return plan_view(request, uid=1000, gid=1000, root=root)


def binds(steps: list[Step]) -> dict[str, tuple[str, str]]:
    return {step[3]: (step[1], step[2]) for step in steps if step[0] == "bind"}


def test_the_places_of_the_host_that_are_shown_can_be_asked_for(request_of_a_job: SandboxRequest, root: Path) -> None:
    told = visible_paths(request_of_a_job, root=root)
    assert {str(place) for place in told} >= {
        source for kind, source in binds(plan(request_of_a_job, root)).values() if kind != "device"
    }


def test_only_listed_folders_of_the_host_are_shown(request_of_a_job: SandboxRequest, root: Path) -> None:
    shown = binds(plan(request_of_a_job, root))
    python = str(root / "home/me/python")
    assert set(shown) == {
        *("/usr", "/etc", "/sys", "/opt/tools", "/tmp", "/var/tmp", "/opt/ml", "/dev/null"),
        python,
    }
    assert shown[python] == ("read_only", python)


def test_links_of_the_system_stay_links(request_of_a_job: SandboxRequest, root: Path) -> None:
    steps = plan(request_of_a_job, root)
    assert ("link", "/bin", "usr/bin") in steps
    assert ("link", "/opt/latest", "tools") in steps


def test_the_ml_folder_of_the_host_gives_way_to_that_of_the_job(request_of_a_job: SandboxRequest, root: Path) -> None:
    assert binds(plan(request_of_a_job, root))["/opt/ml"] == ("writable", str(root / "home/me/yard/ml"))


def test_a_hidden_part_of_the_system_is_masked_and_sealed_at_the_end(
    request_of_a_job: SandboxRequest, root: Path
) -> None:
    (root / "opt/tools/yard").mkdir()
    (root / "opt/tools/key").touch()
    hidden = [root / "opt/tools/yard", root / "opt/tools/key", root / "opt/tools/missing"]
    steps = plan(replace(request_of_a_job, hidden=hidden), root)
    masks = [step[1] for step in steps if step[0] == "mask"]
    assert masks == ["/opt/tools/yard", "/opt/tools/key"]
    assert steps[-1] == ("seal", "/opt/tools/yard")
    assert steps.index(("mask", "/opt/tools/yard")) > next(i for i, step in enumerate(steps) if "/opt/tools" in step)


def test_a_hidden_folder_of_the_system_is_not_shown(request_of_a_job: SandboxRequest, root: Path) -> None:
    assert "/opt/tools" not in binds(plan(replace(request_of_a_job, hidden=[root / "opt/tools"]), root))


def test_requested_paths_are_shown_inside_hidden_folders(request_of_a_job: SandboxRequest, root: Path) -> None:
    (root / "opt/tools/yard/data").mkdir(parents=True)
    data = root / "opt/tools/yard/data"
    steps = plan(
        replace(request_of_a_job, hidden=[root / "opt/tools/yard"], read_only=[Bind(data, "/opt/tools/yard/data")]),
        root,
    )
    mask = steps.index(("mask", "/opt/tools/yard"))
    assert steps.index(("bind", "read_only", str(data), "/opt/tools/yard/data")) > mask


def test_what_is_hidden_is_masked_under_the_name_that_shows_it(request_of_a_job: SandboxRequest, root: Path) -> None:
    (root / "srv/data/keys").mkdir(parents=True)
    wanted = replace(
        request_of_a_job, hidden=[root / "srv/data/keys"], writable=[Bind(root / "srv/data", "/mnt/elsewhere")]
    )
    assert ("mask", "/mnt/elsewhere/keys") in plan(wanted, root)


def test_a_hidden_folder_is_found_behind_a_link(request_of_a_job: SandboxRequest, root: Path) -> None:
    (root / "opt/tools/yard").mkdir()
    (root / "srv/yard").symlink_to(root / "opt/tools/yard")
    assert ("mask", "/opt/tools/yard") in plan(replace(request_of_a_job, hidden=[root / "srv/yard"]), root)


@pytest.mark.parametrize("target", ["relative", "/", "/../.."])
def test_a_bind_has_an_absolute_place_below_the_root(request_of_a_job: SandboxRequest, root: Path, target: str) -> None:
    with pytest.raises(InvalidRequest, match="absolute path"):
        plan(replace(request_of_a_job, writable=[Bind(root / "srv", target)]), root)


def test_gpus_are_there_only_for_jobs_that_have_some(request_of_a_job: SandboxRequest, root: Path) -> None:
    assert "/dev/nvidia0" not in binds(plan(request_of_a_job, root))
    with_gpu = replace(request_of_a_job, limits=LimitSpec(gpus=(0,)))
    devices = {target for target, (kind, _) in binds(plan(with_gpu, root)).items() if kind == "device"}
    assert devices == {"/dev/null", "/dev/nvidia0", "/dev/nvidiactl"}


def test_the_hosts_file_has_the_job_itself_and_what_it_was_given(request_of_a_job: SandboxRequest, root: Path) -> None:
    given = replace(request_of_a_job, hostname="algo-2", hosts=["10.0.0.1 algo-1"])
    text = next(step[2] for step in plan(given, root) if step[:2] == ("text", "/etc/hosts"))
    assert "127.0.0.1 algo-2" in text.splitlines()
    assert "10.0.0.1 algo-1" in text.splitlines()


def test_an_isolated_program_has_no_name_server(request_of_a_job: SandboxRequest, root: Path) -> None:
    def texts(given: SandboxRequest) -> list[str]:
        return [step[2] for step in plan(given, root) if step[:2] == ("text", "/etc/nsswitch.conf")]

    assert texts(request_of_a_job) == []
    (text,) = texts(replace(request_of_a_job, network=SandboxNetwork()))
    assert "hosts: files" in text.splitlines()


def test_a_host_with_an_address_of_its_own_is_not_on_the_loopback(request_of_a_job: SandboxRequest, root: Path) -> None:
    given = replace(request_of_a_job, hostname="algo-1", hosts=["10.0.0.1 algo-1"])
    text = next(step[2] for step in plan(given, root) if step[:2] == ("text", "/etc/hosts"))
    assert "127.0.0.1 algo-1" not in text


def test_shared_memory_takes_at_most_half_of_the_memory(request_of_a_job: SandboxRequest, root: Path) -> None:
    limited = replace(request_of_a_job, limits=LimitSpec(memory_bytes=1000))
    assert ("tmpfs", "/dev/shm", "mode=1777,size=500") in plan(limited, root)


def test_a_resolver_that_keeps_its_file_elsewhere_stays_reachable(request_of_a_job: SandboxRequest, root: Path) -> None:
    (root / "run/resolve").mkdir(parents=True)
    (root / "run/resolve/stub.conf").touch()
    (root / "etc/resolv.conf").symlink_to("../run/resolve/stub.conf")
    assert binds(plan(request_of_a_job, root))["/run/resolve/stub.conf"][0] == "system"


def listen(root: Path, *places: str) -> None:
    """Have sockets at these paths of the host, or abstract ones."""
    for place in places:
        if place.startswith("/"):
            (root / place[1:]).parent.mkdir(parents=True, exist_ok=True)
            os.mknod(root / place[1:], stat.S_IFSOCK | 0o600)
    (root / "proc/net").mkdir(parents=True)
    lines = ["Num RefCount Protocol Flags Type St Inode Path"]
    lines += [f"0000: 00000002 00000000 00010000 0001 01 77 {place}" for place in places]
    lines += ["0000: 00000002 00000000 00010000 0001 01 78"]
    (root / "proc/net/unix").write_text("\n".join(lines))


def test_a_program_with_a_network_of_its_own_sees_no_socket_but_its_own(
    request_of_a_job: SandboxRequest, root: Path
) -> None:
    listen(root, "/srv/door", "/home/me/yard/ml/.trainyard/door")
    shared = replace(request_of_a_job, writable=[Bind(root / "srv", "/opt/ml/input/data/sets")])
    assert [step for step in plan(shared, root) if step[0] == "mask"] == []
    masks = [step for step in plan(replace(shared, network=SandboxNetwork()), root) if step[0] == "mask"]
    assert masks == [("mask", "/opt/ml/input/data/sets/door")]


def test_sockets_in_folders_of_the_system_are_masked(request_of_a_job: SandboxRequest, root: Path) -> None:
    listen(root, "/opt/tools/door", "/run/door", "@x")
    assert [step for step in plan(request_of_a_job, root) if step[0] == "mask"] == [("mask", "/opt/tools/door")]


def test_a_socket_that_another_sandbox_gave_the_name_of_a_file_hides_nothing(
    request_of_a_job: SandboxRequest, root: Path
) -> None:
    listen(root, "/opt/tools/door")
    (root / "opt/tools/door").unlink()
    (root / "opt/tools/door").mkdir()
    assert [step for step in plan(request_of_a_job, root) if step[0] == "mask"] == []


def test_a_socket_with_line_breaks_in_its_name_hides_nothing_and_keeps_nobody_from_starting(
    request_of_a_job: SandboxRequest, root: Path
) -> None:
    listen(root, "/opt/tools/door", "x\n\n \n/opt/tools/door")
    assert [step for step in plan(request_of_a_job, root) if step[0] == "mask"] == [("mask", "/opt/tools/door")]


def test_a_folder_shown_copy_on_write_lies_on_what_holds_it(request_of_a_job: SandboxRequest, root: Path) -> None:
    data = CopyOnWrite(root / "srv", "/opt/ml/input/data/train", root / "home/me/yard/scratch/train")
    steps = plan(replace(request_of_a_job, copy_on_write=[data], hidden=[root / "srv", root / "home"]), root)
    layers = ("overlay", str(root / "srv"), str(root / "home/me/yard/scratch/train"), "/opt/ml/input/data/train")
    assert layers in steps
    assert steps.index(layers) > steps.index(("bind", "writable", str(root / "home/me/yard/ml"), "/opt/ml"))


@pytest.mark.parametrize("below", ["sets", "latest", "./sets/../sets"])
def test_a_path_below_a_folder_is_followed_before_it_is_bound(
    request_of_a_job: SandboxRequest, root: Path, below: str
) -> None:
    (root / "srv/sets").mkdir()
    (root / "srv/latest").symlink_to("sets")
    bind = Bind(root / "srv", "/opt/ml/input/data/sets", below=below)
    shown = binds(plan(replace(request_of_a_job, read_only=[bind]), root))
    assert shown["/opt/ml/input/data/sets"] == ("read_only", str(root / "srv/sets"))


@pytest.mark.parametrize("below", ["outside", "..", "../etc", "sets/../../etc"])
def test_a_path_below_a_folder_does_not_lead_out_of_it(
    request_of_a_job: SandboxRequest, root: Path, below: str
) -> None:
    (root / "srv/sets").mkdir()
    (root / "srv/outside").symlink_to("../etc")
    bind = Bind(root / "srv", "/opt/ml/input/data/sets", below=below)
    with pytest.raises(InvalidRequest, match="is outside the folder"):
        plan(replace(request_of_a_job, read_only=[bind]), root)


def test_a_link_in_a_shared_folder_does_not_show_what_is_hidden(request_of_a_job: SandboxRequest, root: Path) -> None:
    (root / "srv/mine").mkdir()
    (root / "srv/yard/keys").mkdir(parents=True)
    (root / "srv/mine/all").symlink_to("../yard")
    bind = Bind(root / "srv", "/opt/ml/input/data/sets", below="mine/all")
    steps = plan(replace(request_of_a_job, read_only=[bind], hidden=[root / "srv/yard/keys"]), root)
    assert ("mask", "/opt/ml/input/data/sets/keys") in steps


def test_a_target_below_a_link_of_the_system_is_where_the_link_leads(
    request_of_a_job: SandboxRequest, root: Path
) -> None:
    wanted = replace(request_of_a_job, read_only=[Bind(root / "srv", "/bin"), Bind(root / "srv", "/opt/latest/data")])
    shown = binds(plan(wanted, root))
    assert {"/usr/bin", "/opt/tools/data"} <= shown.keys()
    assert not {"/bin", "/opt/latest/data"} & shown.keys()


def test_a_program_sees_no_control_groups_but_its_own(request_of_a_job: SandboxRequest, root: Path) -> None:
    (root / "sys/fs/cgroup").mkdir(parents=True)
    assert ("mask", "/sys/fs/cgroup") in plan(request_of_a_job, root)
    groups = [
        VisibleCgroup("/sys/fs/cgroup/memory/yard/one", "/sys/fs/cgroup/memory"),
        VisibleCgroup("/sys/fs/cgroup/cpu,cpuacct/yard/one", "/sys/fs/cgroup/cpu,cpuacct"),
        VisibleCgroup("/elsewhere/one", "/elsewhere"),
    ]
    steps = plan_view(request_of_a_job, uid=1000, gid=1000, groups=groups, root=root)
    shown = [step for step in steps if "/sys/fs/cgroup" in step[-1] or (step[0] == "link" and "cpuacct" in step[2])]
    assert shown == [
        ("mask", "/sys/fs/cgroup"),
        ("bind", "system", "/sys/fs/cgroup/memory/yard/one", "/sys/fs/cgroup/memory"),
        ("bind", "system", "/sys/fs/cgroup/cpu,cpuacct/yard/one", "/sys/fs/cgroup/cpu,cpuacct"),
        ("link", "/sys/fs/cgroup/cpu", "cpu,cpuacct"),
        ("link", "/sys/fs/cgroup/cpuacct", "cpu,cpuacct"),
        ("seal", "/sys/fs/cgroup"),
    ]


def test_the_group_of_a_program_is_the_top_of_the_only_hierarchy(request_of_a_job: SandboxRequest, root: Path) -> None:
    (root / "sys/fs/cgroup").mkdir(parents=True)
    groups = [VisibleCgroup("/sys/fs/cgroup/yard/one", "/sys/fs/cgroup")]
    steps = plan_view(request_of_a_job, uid=1000, gid=1000, groups=groups, root=root)
    bound = steps.index(("bind", "system", "/sys/fs/cgroup/yard/one", "/sys/fs/cgroup"))
    assert bound == steps.index(("mask", "/sys/fs/cgroup")) + 1


def test_a_program_with_a_network_of_its_own_has_no_devices_of_others(
    request_of_a_job: SandboxRequest, root: Path
) -> None:
    (root / "dev/infiniband").mkdir()
    with_gpu = replace(request_of_a_job, limits=LimitSpec(gpus=(0,)))
    assert {"/dev/infiniband", "/dev/nvidia0"} <= binds(plan(with_gpu, root)).keys()
    shown = binds(plan(replace(with_gpu, network=SandboxNetwork()), root))
    assert "/dev/infiniband" not in shown
    assert "/dev/nvidia0" in shown


def test_the_environment_is_shown_copy_on_write_instead_of_read_only(
    request_of_a_job: SandboxRequest, root: Path
) -> None:
    python = root / "home/me/python"
    changes = root / "home/me/yard/scratch/environment"
    (python / "pip.conf").touch(0o600)
    wanted = replace(
        request_of_a_job,
        copy_on_write=[CopyOnWrite(python, str(python), changes, is_optional=True)],
        hidden=[python / "pip.conf"],
    )
    steps = plan(wanted, root)
    assert str(python) not in binds(steps)
    overlay = steps.index(("optional_overlay", str(python), str(changes), str(python)))
    assert steps.index(("mask", f"{python}/pip.conf")) > overlay


def test_scripts_are_written_where_a_program_finds_them(request_of_a_job: SandboxRequest, root: Path) -> None:
    steps = plan(replace(request_of_a_job, files={"/run/trainyard/bin/sudo": "#!/bin/sh\n"}), root)
    assert ("script", "/run/trainyard/bin/sudo", "#!/bin/sh\n") in steps

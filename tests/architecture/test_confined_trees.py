"""Code with more rights than a job reaches files that the job could have written by descriptors only.

The rule holds for all modules of the agent, also new ones, except those listed here with the reason: their paths are
never where code of a job could have put a link.
"""

from pathlib import Path

import pytest

from tests.architecture.imports import modules
from tests.architecture.layers import SOURCE
from tests.architecture.plain_calls import plain_calls

AGENT = "trainyard.instance.agent."

# Other modules that work in the trees of jobs.
OTHERS = ("trainyard.engines.cluster.folder_tar", "trainyard.instance.warm.frameworks")

FRESH = "it fills a folder that the agent has just made, before any code of the job runs"
OWN = "its files lie in folders of the yard, which no program sees"
KERNEL = "it reads files of the kernel, which has no links of programs there"
SYSTEM = "it reads what the system and the environments of the yard's owner have"

ELSEWHERE = {
    "program.archive": FRESH,
    "data.pipe_objects": OWN,  # of the object store
    "data.channels": OWN,
    "data.downloads": OWN,  # or in a folder that its caller has opened, before any code of the job runs
    "data.pipe_feed": OWN,
    "watch.hangs": OWN,
    "watch.hardware.control_groups": KERNEL,
    "watch.hardware.gpu_readings": "it opens a file that is no link and belongs to the yard's user",
    "watch.hardware.job": KERNEL,
    "watch.hardware.kernel_files": KERNEL,
    "watch.hardware.machine": KERNEL,
    "watch.hardware.processes": KERNEL,
    "program.image_environment": SYSTEM,
    "program.installer": "it runs in the sandbox, with no more rights than the job",
    "program.interfaces": SYSTEM,
    "data.channel_cache": OWN,
    "program.network": OWN,
    "watch.output": OWN,
    "data.remote_files.cache": OWN,
    "data.remote_files.mounts": OWN,
    "data.remote_files.server": OWN,
    "data.remote_files.session": SYSTEM,
    "siblings": OWN,
    "program.package_indexes": SYSTEM,
    "program.writable_environment": SYSTEM,
}

# Single calls of modules that otherwise follow the rule.
ALLOWED = {
    ("program.code", "Path.open"): "a download beside the ml folder",
    ("program.code", "Path.unlink"): "a download beside the ml folder",
    ("program.code", "os.path.realpath"): "tells where links lead; what is done there follows none",
    ("program.container_training", "Path.mkdir"): "a place to mount at, which no program sees",
    ("program.container_training", "Path.readlink"): "of a descriptor",
    ("watch.disk", "Path.iterdir"): "of /proc",
    ("watch.disk", "Path.stat"): "of /proc, where it tells of what a process has open",
    ("program.environment", "os.access"): "of the system and of the job's environment",
    ("program.installation", "Path.is_file"): "settings of the installers, of the system",
    ("program.installation", "Path.read_bytes"): "of this package",
    ("program.installation", "Path.read_text"): "settings of the installers, of the system",
    ("program.installation", "os.access"): "of the system and of this environment",
    ("program.installation", "shutil.which"): "of the system",
    ("watch.rule_processes", "os.open"): "the log of judges, in the folder of the instance",
    ("layout", "os.chown"): "for folders that lie in one of the yard's",
    ("data.pipes", "Path.mkdir"): "names of FIFOs that no program reaches",
    ("data.pipes", "Path.unlink"): "names of FIFOs that no program reaches",
    ("data.pipes", "os.mkfifo"): "names of FIFOs that no program reaches",
    ("data.pipes", "os.open"): "names of FIFOs that no program reaches",
    ("data.channel_paths", "Path.open"): "files of channels, which no program sees",
    ("data.channel_paths", "os.scandir"): "files of channels, which no program sees",
    ("results.result_storage", "Path.is_dir"): "the ml folder itself, which no program can replace",
    ("watch.debugger_files", "shutil.copyfileobj"): "from one open file to another",
    ("watch.stacks", "Path.read_text"): "of /proc",
    ("watch.step_times", "Path.mkdir"): "copies, in the folder of the instance",
    ("watch.step_times", "Path.open"): "copies, in the folder of the instance",
    ("watch.step_times", "Path.replace"): "copies, in the folder of the instance",
    ("watch.step_times", "Path.write_bytes"): "copies, in the folder of the instance",
    ("folder_tar", "Path.mkdir"): "a new folder of the yard",
}

# Modules that may walk or remove a tree by its path, besides the CLI and the SDK: no such tree belongs to a job.
OWN_TREES = {
    "engines.local.code": "copies of the agent's code",
    "engines.local.processes": "control groups",
    "engines.ray.code_bundle": "archives of the agent's code",
    "engines.ray.node_code": "copies of the agent's code",
    "instance.agent.program.installer": ELSEWHERE["program.installer"],
    "instance.agent.data.remote_files.server": "a mount of its own",
    "link.warm": "folders of warm workers",
    "server.upkeep.archive": "a backup that is being unpacked",
    "server.upkeep.backup": "a backup that is being made, and logs and metrics",
    "server.log_streams": "logs",
}
_TREES = ("os.walk", "os.fwalk", "shutil.rmtree", "shutil.copytree")


def short_name(module: str) -> str:
    return module.removeprefix(AGENT) if module.startswith(AGENT) else module.rpartition(".")[2]


def checked(known: dict[str, Path]) -> dict[str, Path]:
    return {name: path for name, path in known.items() if name.startswith(AGENT) or name in OTHERS}


def faults(name: str, path: Path) -> list[str]:
    if name.removeprefix(AGENT) in ELSEWHERE:
        return []
    short = short_name(name)
    found = [(line, called) for line, called in plain_calls(path) if (short, called) not in ALLOWED]
    return [f"{path}:{line} calls {called}, which a link of a job may redirect anywhere" for line, called in found]


def test_what_a_job_could_have_written_is_reached_by_descriptors() -> None:
    known = checked(modules(SOURCE))
    assert known
    assert [fault for name, path in known.items() for fault in faults(name, path)] == []


def test_every_exception_is_used() -> None:
    known = checked(modules(SOURCE))
    called = {(short_name(name), call) for name, path in known.items() for _, call in plain_calls(path)}
    assert set(ALLOWED) - called == set()
    assert {name for name in ELSEWHERE if name not in {short for short, _ in called}} == set()


def test_no_tree_of_a_job_is_walked_or_removed_by_its_path() -> None:
    parts = ("engines", "link", "server", "instance.agent", "instance.containers")
    known = {name.removeprefix("trainyard."): path for name, path in modules(SOURCE).items()}
    chosen = {name: path for name, path in known.items() if name.startswith(parts)}
    doing = {name for name, path in chosen.items() if any(called in _TREES for _, called in plain_calls(path))}
    assert doing == set(OWN_TREES)


@pytest.mark.parametrize(
    "line",
    [
        "(ml / name).write_text(text)",
        "folder.ml.joinpath(name).mkdir(parents=True)",
        "for parent, folders, files in os.walk(folder): pass",
        "os.chown(path, uid, uid)",
        "os.chmod(name, 0o700)",
        "os.chmod(name, 0o700, dir_fd=folder)",
        "open(path)",
        "path.open('rb')",
        "path.unlink(missing_ok=True)",
        "path.rename(other)",
        "if path.exists(): pass",
        "shutil.rmtree(path)",
        "path.read_text(errors='replace')",
        "os.scandir(path)",
    ],
)
def test_a_plain_call_is_found(line: str, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(f"import os, shutil\n{line}\n")
    assert len(faults(f"{AGENT}something", module)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "os.mkdir(name, dir_fd=folder)",
        "os.utime(descriptor, ns=times)",
        "os.stat(name, dir_fd=folder, follow_symlinks=False)",
        "os.scandir(folder.fileno())",
        "folder.read_text(path, limit_bytes=10)",
        "store.open(where)",
        "text.replace(old, new)",
        "folder.unlink(name)",
    ],
)
def test_a_call_by_a_descriptor_is_not_reported(line: str, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(f"import os, shutil\n{line}\n")
    assert faults(f"{AGENT}something", module) == []

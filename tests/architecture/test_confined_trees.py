"""Code with more rights than a job reaches what the job could have written by descriptors only.

All of the agent is held to it, and so is every module that is added to it, but for those that are named here with the
reason: none of their paths lies where code of a job could have put a link before.
"""

from pathlib import Path

import pytest

from tests.architecture.imports import modules
from tests.architecture.layers import SOURCE
from tests.architecture.plain_calls import plain_calls

AGENT = "trainyard.instance.agent."

# What works in trees of jobs elsewhere.
OTHERS = ("trainyard.engines.cluster.parts", "trainyard.instance.warm.frameworks")

FRESH = "it fills a folder that the agent has just made, before any code of the job runs"
OWN = "its files lie in folders of the yard, which no program sees"
SYSTEM = "it reads what the system and the environments of the yard's owner have"

ELSEWHERE = {
    "archive": FRESH,
    "bodies": OWN,  # of the object store
    "channels": OWN,
    "downloads": OWN,  # or in a folder that its caller has opened, before any code of the job runs
    "executables": SYSTEM,
    "feeding": OWN,
    "hangs": OWN,
    "image_environment": SYSTEM,
    "installer": "it runs in the sandbox, with no more rights than the job",
    "interfaces": SYSTEM,
    "kept_files": OWN,
    "network": OWN,
    "output": OWN,
    "remote_files.cache": OWN,
    "remote_files.mounts": OWN,
    "remote_files.serving": OWN,
    "remote_files.session": SYSTEM,
    "siblings": OWN,
}

# Single calls of modules that otherwise keep to the rule.
ALLOWED = {
    ("code", "Path.open"): "a download beside the ml folder",
    ("code", "Path.unlink"): "a download beside the ml folder",
    ("code", "os.path.realpath"): "tells where links lead; what is done there follows none",
    ("contained", "Path.mkdir"): "a place to mount at, which no program sees",
    ("contained", "Path.readlink"): "of a descriptor",
    ("disk", "Path.iterdir"): "of /proc",
    ("disk", "Path.stat"): "of /proc, where it tells of what a process has open",
    ("index_proxy", "shutil.copyfileobj"): "from one connection to another",
    ("installation", "Path.is_file"): "settings of the installers, of the system",
    ("installation", "Path.read_bytes"): "of this package",
    ("installation", "Path.read_text"): "settings of the installers, of the system",
    ("installation", "os.access"): "of the system and of this environment",
    ("installation", "shutil.which"): "of the system",
    ("judging", "os.open"): "the log of judges, in the folder of the instance",
    ("layout", "os.chown"): "for folders that lie in one of the yard's",
    ("pipes", "Path.mkdir"): "names of FIFOs that no program reaches",
    ("pipes", "Path.unlink"): "names of FIFOs that no program reaches",
    ("pipes", "os.mkfifo"): "names of FIFOs that no program reaches",
    ("pipes", "os.open"): "names of FIFOs that no program reaches",
    ("placing", "Path.open"): "files of channels, which no program sees",
    ("placing", "os.scandir"): "files of channels, which no program sees",
    ("results", "Path.is_dir"): "the ml folder itself, which no program can replace",
    ("rule_files", "shutil.copyfileobj"): "from one open file to another",
    ("stacks", "Path.read_text"): "of /proc",
    ("parts", "Path.mkdir"): "a new folder of the yard",
}

# Who may walk or remove a tree by its path, besides the command line and the SDK: none of these is of a job.
OWN_TREES = {
    "engines.local.code": "copies of the agent's code",
    "engines.local.processes": "control groups",
    "engines.ray.parcel": "archives of the agent's code",
    "engines.ray.unpacking": "copies of the agent's code",
    "instance.agent.installer": ELSEWHERE["installer"],
    "instance.agent.remote_files.serving": "a mount of its own",
    "link.warm": "folders of warm workers",
    "server.archive": "a backup that is being unpacked",
    "server.backup": "a backup that is being made, and logs and metrics",
    "server.services.logs.storage": "logs",
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
    return [f"{path}:{line} calls {called}, which a link of a job may lead anywhere" for line, called in found]


@pytest.mark.parametrize("name", checked(modules(SOURCE)))
def test_what_a_job_could_have_written_is_reached_by_descriptors(name: str) -> None:
    assert faults(name, modules(SOURCE)[name]) == []


def test_nothing_is_allowed_that_nobody_does() -> None:
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

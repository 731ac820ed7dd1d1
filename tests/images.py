"""A container image for tests, built from Debian packages that are installed on this machine, without a registry."""

import fcntl
import hashlib
import io
import os
import resource
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import which

_NAME = "localhost/trainyard-test-python"
_PACKAGES = (
    "python3-minimal",
    "python3.11-minimal",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libc6",
    "zlib1g",
    "libexpat1",
    "libcrypt1",
    "dash",
)
_LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
_UNNEEDED = ("/usr/share/doc", "/usr/share/man", "/usr/share/lintian")
_FILES = {"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n"}
_FOLDERS = ("tmp", "root", "opt", "proc", "sys", "dev", "run", "var/tmp", "usr/sbin", "usr/lib64")
_MOST_FILES, _MOST_PROCESSES = 20_000, 1_000


class ImageMissing(Exception):
    """No image can be built or run here; the message says why."""


def python_image() -> str:
    """Return the name of an image with a plain Python 3 and a shell and no entry point, and build it if it is missing.

    It stays in podman's own store, because it is the same for every run.
    """
    podman = require_podman()
    packages = _installed()
    name = f"{_NAME}:{hashlib.sha256(repr(sorted(packages)).encode()).hexdigest()[:12]}"
    with (Path(tempfile.gettempdir()) / f"trainyard-test-image-{os.geteuid()}.lock").open("w") as lock:
        # Other processes of the same run need the same image.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if subprocess.run([podman, "image", "exists", name], check=False).returncode:
            _make(podman, name)
    return name


def require_podman() -> str:
    """Return the path of podman, or raise ImageMissing."""
    podman = which("podman")
    if podman is None:
        raise ImageMissing("podman is not installed")
    return podman


def run_options() -> Sequence[str]:
    """Return the options that `podman run` needs on this machine: limits that this process may set itself.

    podman asks for more open files and processes than a process without CAP_SYS_RESOURCE may allow its children.
    """
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY or files > 1_000_000:
        return ()
    return ("--ulimit", f"nofile={min(files, _MOST_FILES)}", "--ulimit", f"nproc={_MOST_PROCESSES}")


def _installed() -> list[str]:
    """Return the packages with their versions, or raise ImageMissing if they are not installed."""
    if which("dpkg-query") is None:
        raise ImageMissing("the test image is built from Debian packages, and this machine is not a Debian")
    asked = ["dpkg-query", "--show", "--showformat", "${Package}=${Version}\n", *_PACKAGES]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageMissing(f"the test image needs Debian packages that are missing: {done.stderr.strip()}")
    return done.stdout.split()


def _make(podman: str, name: str) -> None:
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            _fill(archive)
        file.flush()
        _run(podman, "import", "--quiet", "--change", "ENV PATH=/usr/bin:/bin", file.name, name)


def _fill(archive: tarfile.TarFile) -> None:
    for name, target in _LINKS.items():
        link = tarfile.TarInfo(name)
        link.type, link.linkname = tarfile.SYMTYPE, target
        archive.addfile(link)
    for name in _FOLDERS:
        folder = tarfile.TarInfo(name)
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name.endswith("tmp") else 0o755
        archive.addfile(folder)
    for name, text in _FILES.items():
        file = tarfile.TarInfo(name)
        file.size, file.mode = len(text), 0o644
        archive.addfile(file, io.BytesIO(text.encode()))
    for path in sorted(set(_files())):
        archive.add(path, path.lstrip("/"), recursive=False)


def _files() -> Iterator[str]:
    """Yield the files of the packages, by paths without links to folders."""
    listed = _run("dpkg", "--listfiles", *_PACKAGES).splitlines()
    for line in listed:
        if not line.startswith("/") or line.startswith(_UNNEEDED):
            continue
        parent, name = os.path.split(line)
        path = os.path.join(os.path.realpath(parent), name)  # noqa: PTH118 - as many times as there are files
        if os.path.lexists(path) and not Path(path).is_dir():
            yield path


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageMissing(f"`{words[0]} {words[1]}` failed: {done.stderr.strip()}")
    return done.stdout

"""Installs requirements into an environment laid over another one: `python -I installer.py OVERLAY REQUIREMENTS`.

This file is copied into the sandbox and runs there, by the Python of the job, which may be another than the yard's and
sees nothing of Trainyard.
"""

import importlib.metadata
import os
import sys
import venv
from pathlib import Path

# What must not be installed a second time: it is large, and two of it in one program do not work.
PINNED = ("torch", "tensorflow", "jax", "jaxlib")


def main(overlay: Path, requirements: Path) -> None:
    """Become pip, which installs what the environment below does not have already."""
    environment = make_overlay(overlay)
    constraints = overlay / "constraints.txt"
    constraints.write_text("".join(f"{line}\n" for line in pins()))
    options = ["--disable-pip-version-check", "--no-input", "--no-cache-dir", "--progress-bar", "off"]
    files = ["--requirement", str(requirements), "--constraint", str(constraints)]
    os.execv(environment, [str(environment), "-m", "pip", "install", *options, *files])


def make_overlay(overlay: Path) -> Path:
    """Make an environment that sees the packages of this one behind its own; the path of its Python."""
    venv.create(overlay, system_site_packages=True, with_pip=False, symlinks=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = overlay / "lib" / version / "site-packages"
    # A virtual environment below is no system environment, so it has to be named.
    below = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    lines = [f"import site; site.addsitedir({path!r})\n" for path in below]
    (packages / "environment-below.pth").write_text("".join(lines))
    return overlay / "bin" / "python"


def pins() -> "list[str]":
    """Constraints that keep the large packages as they are."""
    found = []
    for name in PINNED:
        try:
            found.append(f"{name}=={importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

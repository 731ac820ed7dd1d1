"""Packages to install in tests, made on the spot so that no index is needed."""

import zipfile
from pathlib import Path

from tests.unit.instance.agent.samples import tar_gz

# A package's own build system, which needs nothing else.
BACKEND = """
import pathlib, zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name, info = "yardcode-1.0-py3-none-any.whl", "yardcode-1.0.dist-info"
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as wheel:
        for path in sorted(pathlib.Path("yardcode").glob("*.py")):
            wheel.write(path)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: yardcode\\nVersion: 1.0\\n" + NEEDS)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def make_wheel(folder: Path, name: str, version: str, *, needs: str = "") -> Path:
    """A package of one module that knows its version, with a script that knows its Python."""
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    needed = f"Requires-Dist: {needs}\n" if needs else ""
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}.py", f"version = {version!r}\ndef main(): print('script', version)\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{name}-script = {name}:main\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def make_source(folder: Path, name: str, version: str, *, backend: str) -> Path:
    """A package that must be built, by its own build system."""
    source = folder / f"{name}-{version}.tar.gz"
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "pyproject.toml": PYPROJECT,
        "backend.py": backend,
    }
    source.write_bytes(tar_gz({f"{name}-{version}/{path}": text for path, text in files.items()}))
    return source


def package_files(*, needs: str = "") -> dict[str, str]:
    """The files of a package, for the code folder of a job."""
    needed = f"Requires-Dist: {needs}\\n" if needs else ""
    return {
        "backend.py": f'NEEDS = "{needed}"\n{BACKEND}',
        "pyproject.toml": PYPROJECT,
        "yardcode/__init__.py": "",
        "yardcode/train.py": "import sys\nprint('module', __name__, sys.argv[1:])\n",
    }

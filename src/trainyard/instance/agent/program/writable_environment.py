"""Lets a program install packages: with pip or uv, as it could in a container of its own.

The environment of its Python is shown copy-on-write. Changes lie in the scratch folder of the instance, so they count
as the job's disk usage and disappear with it. Where that is impossible, pip installs into the job's home folder.
"""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainyard.instance.sandbox.contract import COMMANDS, SETTINGS, Bind, CopyOnWrite
from trainyard.instance.sandbox.interpreters import changeable_folders, private_folders

# In a prefix, or in the library folder of one that also holds other things.
_PACKAGES = ("dist-packages", "site-packages", "lib/python3*/site-packages")
_READABLE_FILE, _READABLE_FOLDER = 0o004, 0o005

# Where the program sees the yard's uv if a script calls it.
_YARD_UV = "/run/trainyard/uv"
_SYSTEM_FOLDERS = (Path("/usr/bin"), Path("/bin"), Path("/usr/local/bin"))

# The program is never root and cannot become it, but scripts that were written for containers call sudo.
_SUDO = """#!/bin/sh
# Runs its arguments: in its sandbox, the program already has every right that it can get.
while [ $# -gt 0 ]; do
    case $1 in
        --) shift; break ;;
        --user|--group|--chdir|--prompt|--host|--role|--type|--other-user|--chroot|--close-from) shift 2 ;;
        --*) shift ;;
        -*[ugDphrtURC]) shift 2 ;;
        -*) shift ;;
        [A-Za-z_]*=*) export "$1"; shift ;;
        *) break ;;
    esac
done
case ${1:-} in
    apt|apt-get|dnf|yum|apk|zypper)
        echo "[trainyard] The system of this machine is read-only for jobs: $1 cannot change it. Install Python" \\
            "packages with pip, or run the job in a container image that has what it needs." >&2 ;;
    "") exit 0 ;;
esac
exec "$@"
"""
# For uv, `--system` means a Python outside any virtual environment; scripts for containers mean the one that runs them.
# uv cannot install into the home folder either, as pip does where the environment cannot be changed. In an environment
# that was installed on top of the image's, it would install everything a second time that the image has, such as torch.
_UV = """#!/bin/sh
python={python} environment={environment} base={base} packages={packages}
programs=${{python%/*}}
own= named= command= skipped=
for word; do
    shift
    if [ $skipped ]; then skipped=; continue; fi
    case $command:$word:$1 in
        " pip"*:-p:"$programs"/python*|" pip"*:--python:"$programs"/python*) own=1 skipped=1; continue ;;
    esac
    case $command:$word in
        " pip"*:--system|" venv"*:--system|" pip"*:--python="$programs"/python*) own=1; continue ;;
        *:-p|*:--python*|*:-t|*:--target*|*:--prefix*) named=1 ;;
        *:-*) ;;
        *) command="$command $word" ;;
    esac
    set -- "$@" "$word"
done
case ${{UV_SYSTEM_PYTHON:-0}} in 0|false|f|no|n|off) ;; *) own=1 ;; esac
unset UV_SYSTEM_PYTHON
if [ $own ]; then
    unset VIRTUAL_ENV CONDA_PREFIX
    [ $named ] || export UV_PYTHON="$python"
elif [ "$VIRTUAL_ENV$CONDA_PREFIX" = "$environment" ]; then
    # An environment that the script made here counts more than its own, as if that were not active.
    if [ -d .venv ]; then unset VIRTUAL_ENV; else export UV_PYTHON="${{UV_PYTHON:-$python}}"; fi
fi
obstacle=
[ -w "$packages" ] || obstacle="cannot change this environment; pip installs into the home folder instead."
[ -z "$base" ] || obstacle="does not see the packages in $base; pip, which sees them, installs instead."
if [ "$UV_PYTHON" = "$python" ] && [ ! $named ] && [ "$obstacle" ]; then
    case $command in " pip install"*)
        echo "[trainyard] uv $obstacle" >&2
        until [ "$1" = install ]; do shift; done
        shift
        exec "$python" -m pip install "$@" ;;
    esac
fi
exec {uv} "$@"
"""
_WHICH = """#!/bin/sh
status=0
for name; do
    case $name in -*) ;; *) command -v "$name" || status=1 ;; esac
done
exit $status
"""


@dataclass(frozen=True, slots=True)
class WritableEnvironment:
    """What a program needs so that installers work in its sandbox.

    `interpreter` is the program's Python, as it sees it, and `base` that of its image. If they differ, `mounts` show
    the environment that was installed for the job, unless it is the job's own. `uv` is that of the yard, and `settings`
    are files that tell installers where packages are.
    """

    interpreter: str
    base: Path
    mounts: Sequence[Bind] = ()
    uv: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def copies(self, changes: Path, hidden: Sequence[Path]) -> list[CopyOnWrite]:
        """Return the folders to show copy-on-write, with their changes below `changes`."""
        folders: Sequence[Bind] = self.mounts
        if self._is_base:
            folders = [Bind(folder, str(folder)) for folder in changeable_folders(self.base, private_folders(hidden))]
        return [
            CopyOnWrite(bind.source, bind.target, changes / str(number), is_optional=True)
            for number, bind in enumerate(folders)
        ]

    def unreadable_entries(self) -> Iterator[Path]:
        """Yield what only its owner may read at the top of the image's environment, such as a pip.conf with a password.

        A root yard shows the files of that environment to the program as its own, so that modes do not protect them.
        """
        for folder in [*changeable_folders(self.base)] if self._is_base else []:
            with os.scandir(folder) as entries:
                yield from (Path(entry.path) for entry in entries if not _is_public(entry))

    @property
    def files(self) -> Mapping[str, str]:
        """The files to show to the program."""
        return {**{f"{COMMANDS}/{name}": text for name, text in self.commands.items()}, **self.settings}

    @property
    def commands(self) -> Mapping[str, str]:
        """Scripts for the names that a program expects to find, unless its environment has them."""
        python = shlex.quote(self.interpreter)
        scripts = {"sudo": _SUDO}
        if not any((folder / "which").exists() for folder in _SYSTEM_FOLDERS):
            scripts["which"] = _WHICH
        for name in ("python", "python3"):
            if not self._is_own_python(name):
                scripts[name] = f'#!/bin/sh\nexec {python} "$@"\n'
        for name in ("pip", "pip3"):
            if not self._has_program(name):
                scripts[name] = f'#!/bin/sh\nexec {python} -m pip "$@"\n'
        if self.uv is not None or self._has_program("uv"):
            scripts["uv"] = _UV.format(
                python=python,
                environment=shlex.quote(self.variables.get("VIRTUAL_ENV", "")),
                packages=shlex.quote(self._packages),
                base="" if self._is_base else shlex.quote(str(self.base.parent.parent)),
                uv=shlex.quote(str(self.base.parent / "uv") if self._has_program("uv") else _YARD_UV),
            )
        return scripts

    @property
    def binds(self) -> list[Bind]:
        """The yard's own uv, unless the environment has one."""
        if self.uv is None or self._has_program("uv"):
            return []
        return [Bind(self.uv, _YARD_UV)]

    @property
    def variables(self) -> Mapping[str, str]:
        return {
            # Programs run as root on SageMaker. The SDK's bootstrap of remote functions reads the name of its user, and
            # for any other it changes the mode of every file of the job, which would copy all channels.
            "LOGNAME": "root",
            **({"VIRTUAL_ENV": str(Path(self.interpreter).parent.parent)} if self._is_virtual else {}),
            # The cache of uv and the environment are on different mounts.
            "UV_LINK_MODE": "copy",
            # The job may do with its copy of a system's Python what it likes.
            "PIP_BREAK_SYSTEM_PACKAGES": "1",
            "UV_BREAK_SYSTEM_PACKAGES": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            **({"XDG_CONFIG_DIRS": f"{SETTINGS}:/etc/xdg"} if self.settings else {}),
        }

    @property
    def _packages(self) -> str:
        """The folder into which an installer puts packages. The top of what is shown copy-on-write is the program's."""
        folders = changeable_folders(self.base) if self._is_base else []
        found = [path for folder in folders for pattern in _PACKAGES for path in sorted(folder.glob(pattern))]
        return str([*found, Path(self.interpreter).parent.parent][0])

    @property
    def _is_virtual(self) -> bool:
        return not self._is_base or (self.base.parent.parent / "pyvenv.cfg").exists()

    @property
    def _is_base(self) -> bool:
        return self.interpreter == str(self.base)

    def _is_own_python(self, name: str) -> bool:
        """Whether that name leads to the interpreter already. An environment made for a job has both names."""
        beside = self.base.parent / name
        return not self._is_base or (beside.exists() and beside.samefile(self.base))

    def _has_program(self, name: str) -> bool:
        """Whether the program finds that of its own environment. One made for a job has none of these."""
        return self._is_base and os.access(self.base.parent / name, os.X_OK)


def _is_public(entry: "os.DirEntry[str]") -> bool:
    try:
        needed = _READABLE_FOLDER if entry.is_dir() else _READABLE_FILE
        return entry.stat().st_mode & needed == needed
    except OSError:
        # A link that leads nowhere.
        return True

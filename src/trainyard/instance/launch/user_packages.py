"""Makes pip work in every Python of a job, and Python find what pip installs into the home folder.

Scripts for containers use `pip install --user` freely. In a virtual environment pip refuses that, and Python does not
look into the home folder. Some environments have no pip at all. This file is also run on its own, by sitecustomize.
"""

import os
import site
import sys


def find_user_packages() -> None:
    """Add the user's site-packages to the path, before those of the environment. Make them, to be found once filled."""
    if sys.flags.isolated or sys.flags.no_user_site or not os.environ.get("HOME"):
        return
    if _is_pip():
        _prepare_pip()
    folder = site.getusersitepackages()
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError:
        # The home folder is not writable.
        return
    site.ENABLE_USER_SITE = True
    if folder not in sys.path:
        packages = set(site.getsitepackages())
        place = next((place for place, entry in enumerate(sys.path) if entry in packages), len(sys.path))
        site.addsitedir(folder)
        sys.path.remove(folder)
        sys.path.insert(place, folder)


def _is_pip() -> bool:
    if sys.argv[0] == "-m":
        return sys.orig_argv[-len(sys.argv)] in ("pip", "-mpip")
    name = os.path.basename(sys.argv[0])
    return name.startswith("pip") and not name[3:].strip("0123456789.")


def _prepare_pip() -> None:
    """Let pip choose: it installs into the environment if that is writable, and into the home folder otherwise."""
    from importlib.util import find_spec

    if sys.prefix != sys.base_prefix:
        os.environ.pop("PIP_USER", None)
        if "--user" in sys.argv:
            sys.argv.remove("--user")
    if find_spec("pip") is None:
        sys.path.extend(_bundled_pip())


def _bundled_pip() -> list[str]:
    """Return the wheel of pip that comes with Python. Debian keeps it in another package."""
    from glob import glob

    folders = (os.path.join(os.path.dirname(os.__file__), "ensurepip", "_bundled"), "/usr/share/python-wheels")
    return [wheel for folder in folders for wheel in sorted(glob(os.path.join(folder, "pip-*.whl")))][:1]

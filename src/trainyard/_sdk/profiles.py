"""Profiles: the yards on other machines that this user has logged in to, each with its address, keys and authority.

A profile is a folder below the user's configuration, private to the user. One profile is the current one: commands and
sessions use its yard unless something names another.
"""

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainyard._sdk.user_folders import config_folder
from trainyard.foundation.errors import Corrupt, InvalidRequest, NotFound
from trainyard.foundation.files import make_folder, replace_file

PROFILE_VARIABLE = "TRAINYARD_PROFILE"
# The name of the profile that `trainyard login` writes if it is not told another.
DEFAULT_PROFILE = "default"
# In place of a profile, this means the yard on this machine.
LOCAL = "local"

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Profile:
    """A yard on another machine, and a user of it. `role` is the ARN of the role that the user's jobs run with."""

    name: str
    url: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    region: str
    user: str
    account: str
    role: str


class Profiles:
    """The profiles of one user."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        """Return the names of all profiles, sorted."""
        try:
            return sorted(entry.name for entry in os.scandir(self._folder / "profiles") if entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def load(self, name: str) -> Profile:
        """Return a profile; NotFound if there is none with this name."""
        file = self._file(name)
        try:
            values = json.loads(file.read_bytes())
            return Profile(name, **{key: str(values[key]) for key in _STORED})
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound("profile", name) from None
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"{file} is damaged; remove it and log in again with `trainyard login`.") from error

    def save(self, profile: Profile, *, authority: bytes, bundle: bytes) -> None:
        """Store a profile and make it the current one.

        `authority` is the certificate of the yard's authority, empty if its certificate is trusted anyway. `bundle` is
        the authority with those that AWS clients trust besides.
        """
        file = self._file(profile.name)
        make_folder(file.parent, parents=True)
        for path, content in ((self.authority(profile.name), authority), (self.bundle(profile.name), bundle)):
            if content:
                replace_file(path, content)
            else:
                path.unlink(missing_ok=True)
        values = dataclasses.asdict(profile)
        replace_file(file, json.dumps({key: values[key] for key in _STORED}, indent=2).encode() + b"\n")
        self.use(profile.name)

    def remove(self, name: str) -> None:
        """Remove a profile; NotFound if there is none with this name."""
        self.load(name)
        if self.current() == name:
            self._current_file.unlink(missing_ok=True)
        shutil.rmtree(self._file(name).parent)

    def current(self) -> str:
        """Return the name of the current profile, or an empty string."""
        try:
            return self._current_file.read_text().strip()
        except (FileNotFoundError, NotADirectoryError):
            return ""

    def use(self, name: str) -> None:
        """Make a profile the current one; `local` for the yard on this machine. NotFound if there is none."""
        if name == LOCAL:
            self._current_file.unlink(missing_ok=True)
            return
        self.load(name)
        replace_file(self._current_file, f"{name}\n".encode())

    def authority(self, name: str) -> Path:
        """Return the file with the certificate of the yard's authority. It exists only if the yard has its own."""
        return self._file(name).with_name("ca.pem")

    def bundle(self, name: str) -> Path:
        """Return the file with that authority and the public ones, for AWS_CA_BUNDLE; it exists only with the other."""
        return self._file(name).with_name("bundle.pem")

    @property
    def connection(self) -> Path:
        """What `trainyard connect` replaced for a profile, kept for `trainyard disconnect`."""
        return self._folder / "connection"

    @property
    def _current_file(self) -> Path:
        return self._folder / "current-profile"

    def _file(self, name: str) -> Path:
        if name == LOCAL or not _NAME.fullmatch(name):
            raise InvalidRequest(
                f'"{name}" cannot be the name of a profile: use letters, digits, ".", "_" and "-", and not "{LOCAL}", '
                "which means the yard on this machine."
            )
        return self._folder / "profiles" / name / "profile.json"


_STORED = tuple(each.name for each in dataclasses.fields(Profile) if each.name != "name")


def profiles_of(environment: Mapping[str, str]) -> Profiles:
    """Return the profiles of the user with this environment."""
    return Profiles(config_folder(environment))


def selected_profile(environment: Mapping[str, str]) -> Profile | None:
    """Return the profile that TRAINYARD_PROFILE names; None if it is not set or means the yard on this machine."""
    name = environment.get(PROFILE_VARIABLE, "")
    return profiles_of(environment).load(name) if name and name != LOCAL else None


def current_profile(environment: Mapping[str, str]) -> Profile | None:
    """Return the current profile, unless a variable names another yard; None if there is none."""
    if environment.get(PROFILE_VARIABLE) == LOCAL or environment.get("TRAINYARD_HOME"):
        return None
    profiles = profiles_of(environment)
    name = profiles.current()
    return profiles.load(name) if name else None

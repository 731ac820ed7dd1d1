"""The master key: 32 random bytes in a file that only its owner can read."""

import os
from pathlib import Path

from trainyard.foundation.errors import Corrupt, Unavailable
from trainyard.foundation.files import lock_folder, make_folder, replace_file
from trainyard.objects.encryption.cipher import KEY_BYTES


def read_master_key(file: Path) -> bytes | None:
    """Return the master key; None if the file does not exist. Corrupt if it holds something else."""
    try:
        text = file.read_text(encoding="ascii")
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise _damaged_error(file) from error
    except OSError as error:
        raise Unavailable(f"The master key {file} cannot be read: {error.strerror}.") from error
    try:
        key = bytes.fromhex(text)
    except ValueError as error:
        raise _damaged_error(file) from error
    if len(key) != KEY_BYTES:
        raise _damaged_error(file)
    return key


def ensure_master_key(file: Path) -> bytes:
    """Return the master key, and create it if there is none. A new key is durable when this returns."""
    try:
        make_folder(file.parent, parents=True)
        with lock_folder(file.parent):
            key = read_master_key(file)
            if key is None:
                key = os.urandom(KEY_BYTES)
                replace_file(file, key.hex().encode() + b"\n")
            return key
    except OSError as error:
        raise Unavailable(f"The master key {file} cannot be created: {error.strerror}.") from error


def _damaged_error(file: Path) -> Corrupt:
    return Corrupt(f"{file} is not a master key of {KEY_BYTES} bytes in hexadecimal digits. Restore a copy of it.")

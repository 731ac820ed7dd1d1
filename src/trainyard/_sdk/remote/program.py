"""The script of a job that runs a function: it reads the call beside it, and leaves the result where it is synced.

It imports only the standard library, because it runs in the environment of the job. The files are `call.pickle`, and
`result.pickle` with a signature at its beginning.
"""

import hashlib
import hmac
import json
import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

CALL, RESULT = "call.pickle", "result.pickle"
# Where the job leaves the result; a checkpoint folder, because only that is also stored if a job fails.
FOLDER = "/opt/ml/remote-function"
# The variable with the key that signs the result.
KEY_VARIABLE = "TRAINYARD_REMOTE_KEY"
# That with the version of the caller's Python.
PYTHON_VARIABLE = "TRAINYARD_REMOTE_PYTHON"


def main() -> int:
    wanted, here = os.environ[PYTHON_VARIABLE], "{}.{}".format(*sys.version_info[:2])
    folder = Path(__file__).resolve().parent
    sys.path.insert(0, str(folder / "workdir"))
    sys.path.append(str(folder / "libraries"))
    if wanted != here:
        return _fail(
            RuntimeError(
                f"The function was pickled by Python {wanted}, and the job runs Python {here}; pass an image_uri that "
                "is mapped to the same version, or call from that version."
            )
        )
    try:
        function, args, kwargs = pickle.loads((folder / CALL).read_bytes())
        result = function(*args, **kwargs)
    except BaseException as error:
        return _fail(error)
    try:
        return _leave({"result": _pickle(result)})
    except Exception as error:
        return _fail(TypeError(f"The function returned a {type(result).__name__}, which cannot be pickled: {error}"))


def sign(content: bytes, key: str) -> bytes:
    return hmac.digest(key.encode(), content, hashlib.sha256)


def _fail(error: BaseException) -> int:
    """Leave an exception as the result. The traceback ends the log, so that the job fails with it."""
    text = "".join(traceback.format_exception(error))
    try:
        pickled = _pickle(error)
        # Many exceptions can be pickled, and fail when they are unpickled.
        pickle.loads(pickled)
    except Exception:
        pickled = pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    _leave({"error": pickled, "traceback": text})
    sys.stderr.write(text)
    return 1


def _pickle(value: Any) -> bytes:
    import cloudpickle

    pickled: bytes = cloudpickle.dumps(value)
    return pickled


def _leave(outcome: dict[str, Any]) -> int:
    # Every instance calls the function, and the first one answers.
    hosts = sorted(json.loads(os.environ.get("SM_HOSTS", "[]")))
    if not hosts or os.environ.get("SM_CURRENT_HOST") == hosts[0]:
        content = pickle.dumps(outcome)
        folder = Path(FOLDER)
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f".{RESULT}"
        unfinished.write_bytes(sign(content, os.environ[KEY_VARIABLE]) + content)
        unfinished.replace(folder / RESULT)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs a Python script in this interpreter as `python script.py` runs it in one of its own, and ends the process so."""

import atexit
import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading
import weakref
from types import ModuleType, TracebackType
from typing import NoReturn

from trainyard.instance.sandbox.orders import Orders
from trainyard.instance.warm.interpreter import Origin, renew, renew_main

_FLUSH_FAILED = 120  # the exit code of an interpreter that cannot write what it still holds
_libc = ctypes.CDLL(None)


def run(orders: Orders, origin: Origin, *, failed: int) -> NoReturn:
    """Be the program. Nothing of the worker runs any more when the first line of the script does.

    A reason why it cannot be goes to `failed`; once that is closed, whatever happens is the program's own doing.
    """
    try:
        renew(orders, origin)
        file = os.path.join(os.getcwd(), sys.argv[0])
        renew_main(file)
    except Exception as error:
        os.write(failed, repr(error).encode())
        os._exit(127)
    os.close(failed)
    _finish(_execute(file), origin)


def _execute(file: str) -> int | None:
    """The exit code; None when it ends by SIGINT."""
    error = _raised_in(file)
    if error is None:
        return 0
    return _exit_code(error) if isinstance(error, SystemExit) else _show(error)


def _raised_in(file: str) -> BaseException | None:
    """Returned, not handled: what a hook raises must not have it as its context."""
    try:
        with open(file, "rb") as source:
            text = source.read()
        exec(compile(text, file, "exec", dont_inherit=True), sys.modules["__main__"].__dict__)
    except BaseException as error:
        return error
    return None


def _exit_code(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        return leaving.code & 0xFF
    with contextlib.suppress(Exception):  # there is nobody left to tell
        sys.stderr.write(f"{leaving.code}\n")
    return 1


def _show(error: BaseException) -> int | None:
    """Show an exception that nobody caught, from the first frame of the script on."""
    trace = error.__traceback__.tb_next if error.__traceback__ else None
    error.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(type(error), error, trace)
    except SystemExit as leaving:
        return _exit_code(leaving)
    except BaseException as other:
        _show_broken_hook(other, error, trace)
    return None if isinstance(error, KeyboardInterrupt) else 1


def _show_broken_hook(other: BaseException, error: BaseException, trace: TracebackType | None) -> None:
    other.__traceback__ = other.__traceback__.tb_next if other.__traceback__ else None
    sys.stderr.write("Error in sys.excepthook:\n")
    sys.__excepthook__(type(other), other, other.__traceback__)
    sys.stderr.write("\nOriginal exception was:\n")
    sys.__excepthook__(type(error), error, trace)


def _finish(code: int | None, origin: Origin) -> NoReturn:
    """End as an interpreter does: its threads, its exit functions, what only the program's modules held, its streams.

    What the worker had imported is not taken apart, which would take as long as a cold start of the whole job should.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    if len(sys._current_frames()) > 1:
        _leave_to_interpreter(code)
    atexit._run_exitfuncs()
    is_written = _flush()
    _drop_modules(origin)
    if not (_flush() and is_written):
        code = _FLUSH_FAILED
    _libc.fflush(None)
    if code is None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(130 if code is None else code)


def _leave_to_interpreter(code: int | None) -> NoReturn:
    """Daemon threads run on until the interpreter stops them, which only it can."""
    if code is None:
        sys.excepthook = lambda *_: None  # it was shown already
        raise KeyboardInterrupt
    raise SystemExit(code)


def _drop_modules(origin: Origin) -> None:
    """Let go of the program's modules and of what it imported, so that files are closed and finalizers run."""
    sys.last_type = sys.last_value = sys.last_traceback = None
    if sys.version_info >= (3, 12):
        sys.last_exc = None
    gc.collect()  # as the interpreter does: it also sorts what is left, so that a file is closed before its buffer
    names = [name for name in sys.modules if name not in origin.modules or name == "__main__"]
    references = [_reference(sys.modules.pop(name)) for name in names]
    gc.collect()  # most go now, with all that their finalizers may still want to use
    for reference in reversed(references):
        _empty(reference() if reference else None)
    gc.collect()


def _reference(module: object) -> "weakref.ref[ModuleType] | None":
    return weakref.ref(module) if isinstance(module, ModuleType) else None


def _empty(module: ModuleType | None) -> None:
    contents = {} if module is None else module.__dict__
    for name in sorted(contents, key=lambda name: not name.startswith("_") or name.startswith("__")):
        if name != "__builtins__":
            contents[name] = None


def _flush() -> bool:
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
    except Exception:
        return False
    return True

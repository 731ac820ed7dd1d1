"""Runs a Python script in this interpreter, and ends the process, as `python script.py` does."""

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

from trainyard.instance.sandbox.spec import SandboxSpec
from trainyard.instance.warm.interpreter import InterpreterState, reset_interpreter, reset_main

# Python's exit code if it cannot flush its output.
_FLUSH_FAILED = 120
_libc = ctypes.CDLL(None)


def run(spec: SandboxSpec, origin: InterpreterState, *, failure_fd: int) -> NoReturn:
    """Become the program. When the first line of the script runs, nothing of the worker runs any more.

    If that fails, the reason goes to `failure_fd`. Once that is closed, everything is the program's own doing.
    """
    try:
        reset_interpreter(spec, origin)
        file = os.path.join(os.getcwd(), sys.argv[0])
        reset_main(file)
    except Exception as error:
        os.write(failure_fd, repr(error).encode())
        os._exit(127)
    os.close(failure_fd)
    _finish(_execute(file), origin)


def _execute(file: str) -> int | None:
    """Run the script and return its exit code, or None if it ends by SIGINT."""
    error = _run_file(file)
    if error is None:
        return 0
    return _exit_code(error) if isinstance(error, SystemExit) else _show(error)


def _run_file(file: str) -> BaseException | None:
    """Run the script and return what it raised, since an exception from a hook must not get it as its context."""
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
    with contextlib.suppress(Exception):
        sys.stderr.write(f"{leaving.code}\n")
    return 1


def _show(error: BaseException) -> int | None:
    """Print an uncaught exception, starting at the first frame of the script."""
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


def _finish(code: int | None, origin: InterpreterState) -> NoReturn:
    """Shut down as an interpreter does: join threads, run exit functions, drop the program's modules, flush streams.

    What the worker imported is not torn down, since that would take as long as a cold start.
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
    """Exit through the interpreter, which alone can stop daemon threads."""
    if code is None:
        # The exception has already been printed.
        sys.excepthook = lambda *_: None
        raise KeyboardInterrupt
    raise SystemExit(code)


def _drop_modules(origin: InterpreterState) -> None:
    """Drop the program's modules and what it imported, so that files are closed and finalizers run."""
    sys.last_type = sys.last_value = sys.last_traceback = None
    if sys.version_info >= (3, 12):
        sys.last_exc = None
    # As the interpreter does. This also orders what is left, so that a file is closed before its buffer.
    gc.collect()
    names = [name for name in sys.modules if name not in origin.modules or name == "__main__"]
    references = [_reference(sys.modules.pop(name)) for name in names]
    # Most modules are freed here, while everything that their finalizers may need still exists.
    gc.collect()
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

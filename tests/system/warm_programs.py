"""Programs, by name, that print the state of their interpreter. Their output must be the same cold and warm."""

PROGRAMS = {
    "an exception nobody caught": """
import json
import pandas

def read(text):
    try:
        return json.loads(text)
    except ValueError as error:
        raise RuntimeError("cannot read") from error

class Trainer:
    def fit(self):
        read("{")

Trainer().fit()
""",
    "a group of exceptions": """
import pandas
raise ExceptionGroup("several", [ValueError("one"), TypeError("two")])
""",
    "an error of syntax": "import pandas\nx = = 1\n",
    "an error of syntax in a module": "import pandas\nimport broken\n",
    "an exit with a text": "import sys, pandas\nsys.exit('no data')\n",
    "an exit with a number": "import sys, pandas\nsys.exit(3)\n",
    "an exit with a number that is too large": "import sys, pandas\nsys.exit(258)\n",
    "an exit with nothing": "import sys, pandas\nsys.exit()\n",
    "an exit at once": "import os, pandas\nprint('bye', flush=True)\nos._exit(7)\n",
    "an interrupt": "import pandas\nraise KeyboardInterrupt\n",
    "a signal that kills": "import os, pandas, signal\nos.kill(os.getpid(), signal.SIGTERM)\n",
    "an abort": "import os, pandas\nos.abort()\n",
    "the readers of data": """
import sys, pandas
import trainyard.data
print(trainyard.data.__file__, sys.path)
""",
    "a hook for exceptions": """
import sys, pandas
sys.excepthook = lambda kind, error, trace: print("hooked", kind.__name__, error, trace.tb_lineno)
raise LookupError("gone")
""",
    "a hook that fails": """
import sys, pandas
def hook(kind, error, trace):
    raise ValueError("of the hook")
sys.excepthook = hook
raise LookupError("gone")
""",
    "the end of an interpreter": """
import atexit, sys, threading, time
import pandas
import kept

class Told:
    def __del__(self):
        print("finalized", kept.NAME)

told = Told()
unclosed = open("/opt/ml/output/data/unclosed.txt", "w")
unclosed.write("x" * 1000)
atexit.register(print, "first registered")
atexit.register(print, "last registered")
threading.Thread(target=lambda: (time.sleep(0.1), print("thread done"))).start()
sys.stdout = open(1, "w", closefd=False)
print("held back until the end")
""",
    "daemon threads at the end": """
import atexit, threading, time
import pandas
WORDS = ["a"]
def work():
    while True:
        WORDS.append("b")
        time.sleep(0)
threading.Thread(target=work, daemon=True).start()
atexit.register(print, "bye")
print("leaving")
""",
    "an exit function that fails": """
import atexit, pandas
atexit.register(lambda: 1 / 0)
print("leaving")
""",
    "what processes are started with": """
import multiprocessing, os, subprocess, sys
import pandas

class Point:
    def __init__(self, x):
        self.x = x

def square(point):
    return Point(point.x ** 2)

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, [each.x for each in pool.map(square, [Point(2), Point(3)])])
    code = "import sys, os; print(sys.path, sys.prefix, sys.argv, os.getcwd(), flush=True)"
    subprocess.run([sys.executable, "-c", code, "word"], check=True)
""",
    "pickling of what a script defines": """
import pickle, inspect, pandas
class Model:
    weight = 1
def train():
    return 7
print(pickle.dumps(Model()), pickle.loads(pickle.dumps(train))(), inspect.getsource(train), inspect.getfile(Model))
""",
    "the interpreter": """
import builtins, ctypes, decimal, gc, getpass, json, locale, logging, os, platform, resource, signal, site, socket, sys
import sysconfig, tempfile, threading, time, warnings, pandas

def show(name, value):
    print(name, json.dumps(value, default=repr, sort_keys=True))

main = sys.modules["__main__"]
for name in ("argv", "orig_argv", "path", "executable", "_base_executable", "prefix", "exec_prefix", "base_prefix",
             "flags", "warnoptions", "dont_write_bytecode", "pycache_prefix", "ps1", "tracebacklimit"):
    show(name, getattr(sys, name, "absent"))
show("main", {name: repr(value) for name, value in vars(main).items() if name.startswith("__")})
show("is main", [main is __import__("__main__"), vars(main) is globals(), __name__, __file__, __builtins__ is builtins])
show("of ours", [name for name in sys.modules if name.startswith("trainyard")])
show("environment", dict(os.environ))
show("folder", [os.getcwd(), oct(os.umask(0)), tempfile.gettempdir()])
for stream in (sys.stdin, sys.stdout, sys.stderr):
    show("stream", [stream.name, stream.mode, stream.encoding, stream.errors, stream.newlines, stream.line_buffering,
                    stream.write_through, stream.seekable(), stream.isatty(), type(stream.buffer), stream.fileno()])
show("originals", [sys.__stdout__ is sys.stdout, sys.__stderr__ is sys.stderr, sys.excepthook is sys.__excepthook__])
show("signals", {number: signal.getsignal(number) for number in sorted(signal.valid_signals())})
show("blocked", signal.pthread_sigmask(signal.SIG_BLOCK, ()))
show("limits", {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIM")
                and name != "RLIM_INFINITY"})
show("processes", [os.getpid(), os.getppid(), os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()])
show("identity", [os.getresuid(), os.getresgid(), os.getgroups()])
status = open("/proc/self/status").read().splitlines()
show("status", [line for line in status if line.startswith(("Cap", "NoNewPrivs", "Seccomp", "Sig", "Threads"))])
show("dumpable", ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
show("oom", open("/proc/self/oom_score_adj").read())
show("command", [open("/proc/self/comm").read(), open("/proc/self/cmdline").read().rstrip(chr(0)).split(chr(0))])
show("descriptors", sorted(os.listdir("/proc/self/fd")))
show("hosts", [socket.gethostname(), platform.node(), getpass.getuser(), platform.platform()])
show("locale", [locale.getlocale(), locale.setlocale(locale.LC_CTYPE), locale.getpreferredencoding(), time.tzname])
show("decimal", decimal.getcontext())
show("warnings", [repr(each) for each in warnings.filters])
show("logging", [logging.getLogger().handlers, logging.getLogger().level])
show("garbage", [gc.isenabled(), gc.get_threshold(), gc.callbacks])
show("threads", [threading.current_thread() is threading.main_thread(), threading.active_count(),
                 sys.getswitchinterval(), sys.getrecursionlimit()])
show("site", [site.ENABLE_USER_SITE, site.USER_BASE, site.USER_SITE, site.PREFIXES, site.getsitepackages()])
show("sysconfig", [sysconfig.get_path("purelib"), sysconfig.get_config_var("prefix")])
""",
    "warnings that come again": """
import warnings, pandas
pandas.warn()
warnings.warn("of the script")
""",
    "modules of the code": """
import pandas
from helpers import scale
from helpers.deep import DEEP
import importlib.resources
print(scale(3), DEEP, scale.__module__, importlib.resources.files("helpers").joinpath("words.txt").read_text())
""",
    "output of other kinds": """
import ctypes, os, sys, pandas
os.write(1, b"raw\\n")
print("to errors", file=sys.stderr)
libc = ctypes.CDLL(None)
libc.puts(b"from C, held back until the end")
print("unicode \\u00e9 \\udcff" .encode("utf-8", "backslashreplace").decode())
sys.stderr.write("surrogate \\udcff\\n")
sys.stdout.write("no newline at the end")
""",
}

# Files next to each program.
BESIDE = {
    "broken.py": "def f(:\n",
    "kept.py": "NAME = 'with its module'\n",
    "helpers/__init__.py": "def scale(x):\n    return 2 * x\n",
    "helpers/deep.py": "DEEP = __package__\n",
    "helpers/words.txt": "words",
}

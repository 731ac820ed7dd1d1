"""What is worth importing before a program asks for it, and which programs ask for it: told by their source."""

import os
import re
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# Of each framework, the modules that take long and that most programs need. The first optimizer imports torch._dynamo.
PRELOADS: dict[str, tuple[str, ...]] = {
    "torch": ("torch", "torch.utils.data", "torch.optim", "torch._dynamo", "torch.distributed", "torch.nn.functional"),
    "numpy": ("numpy",),
    "scipy": ("scipy", "scipy.sparse", "scipy.linalg", "scipy.stats"),
    "sklearn": ("sklearn", "sklearn.base", "sklearn.datasets", "sklearn.metrics", "sklearn.model_selection"),
    "pandas": ("pandas",),
}
# Packages that import a framework, and which.
_BUILT_ON = {
    "accelerate": "torch",
    "lightning": "torch",
    "pytorch_lightning": "torch",
    "timm": "torch",
    "torchaudio": "torch",
    "torchmetrics": "torch",
    "torchvision": "torch",
    "transformers": "torch",
}

_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(?P<origin>[\w.]+)[ \t]+import|import[ \t]+(?P<names>[^\n#;(]+))", re.MULTILINE
)
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_LEFT_OUT = ("torch.utils.tensorboard",)  # which imports whatever TensorFlow there is
_MOST_ENTRIES = 5000  # of a code folder that is looked through
_MOST_SOURCES = 200
_MOST_BYTES = 256 * 1024  # of one source
_MOST_MODULES = 50


@dataclass(slots=True)
class Source:
    """What the code of a program tells of itself.

    `imported` are all modules that it imports by name. `top` are the names that can be imported from its first level
    and from beside its script; `inner` all names of files and folders. What is not `is_whole` has more in it than was
    looked at.
    """

    frameworks: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    imported: set[str] = field(default_factory=set)
    top: set[str] = field(default_factory=set)
    inner: set[str] = field(default_factory=set)
    is_whole: bool = True


def read_source(code: Path, script: str) -> Source:
    """Look through a code folder without following a link out of it; OSError when a part of it cannot be read."""
    source = Source()
    imported: set[str] = set()
    folders = {str(code), str(Path(code, script).parent)}
    sources = 0
    for number, entry in enumerate(_walk(str(code))):
        name = entry.name.partition(".")[0]
        source.inner.add(name)
        if os.path.dirname(entry.path) in folders:
            source.top.add(name)
        if entry.name.endswith(".py") and sources < _MOST_SOURCES:
            sources += 1
            imported |= imported_modules(_read(entry.path))
        if number >= _MOST_ENTRIES:
            source.is_whole = False
            break
    source.imported = imported
    source.frameworks = used_frameworks(imported)
    source.modules = preloads(source.frameworks, imported)
    return source


def imported_modules(text: bytes) -> set[str]:
    """The modules that a source imports by name, wherever it does so."""
    found: set[str] = set()
    for match in _IMPORT.finditer(text):
        names = (match["origin"] or match["names"]).decode(errors="replace")
        found.update(words[0] for name in names.split(",") if (words := name.split()))
    return {name for name in found if _MODULE.fullmatch(name)}


def used_frameworks(imported: Iterable[str]) -> tuple[str, ...]:
    tops = {name.partition(".")[0] for name in imported}
    return tuple(sorted({_BUILT_ON.get(top, top) for top in tops} & PRELOADS.keys()))


def preloads(frameworks: Sequence[str], imported: Iterable[str]) -> tuple[str, ...]:
    """The modules to import for these frameworks: those that everybody needs, then what this program names of them."""
    known = [module for framework in frameworks for module in PRELOADS[framework]]
    named = sorted(name for name in imported if name.partition(".")[0] in frameworks and name not in _LEFT_OUT)
    return tuple(dict.fromkeys((*known, *named[:_MOST_MODULES])))


def _walk(folder: str) -> Iterator["os.DirEntry[str]"]:
    """Entries of a tree, however deep it is, those of a folder before those below it."""
    pending = deque([folder])
    while pending:
        with os.scandir(pending.popleft()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)


def _read(path: str) -> bytes:
    """The beginning of a regular file; nothing of what is none, which could keep us waiting."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, _MOST_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    finally:
        os.close(descriptor)

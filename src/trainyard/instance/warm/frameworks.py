"""Which modules a warm worker imports in advance, and which of them a program uses, according to its source."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from trainyard.foundation.confined import ConfinedFolder

# By framework: the modules that are slow to import and that most programs need. The first optimizer imports
# torch._dynamo.
PRELOADS: dict[str, tuple[str, ...]] = {
    "torch": ("torch", "torch.utils.data", "torch.optim", "torch._dynamo", "torch.distributed", "torch.nn.functional"),
    "numpy": ("numpy",),
    "scipy": ("scipy", "scipy.sparse", "scipy.linalg", "scipy.stats"),
    "sklearn": ("sklearn", "sklearn.base", "sklearn.datasets", "sklearn.metrics", "sklearn.model_selection"),
    "pandas": ("pandas",),
}


def _modules(framework: str, names: str) -> frozenset[str]:
    return frozenset(f"{framework}.{name}" for name in names.split())


# More modules that a worker imports if the code of a program names them. The code is a user's and a worker has the
# rights of the yard, so it imports only names that are listed here. Importing one of these only defines things: it
# starts no thread or process, opens no file, and reads no arguments.
_IMPORTED_IF_NAMED: dict[str, frozenset[str]] = {
    "torch": _modules(
        "torch",
        "amp autograd backends cuda cuda.amp distributed.fsdp distributed.optim distributions fft func jit linalg "
        "multiprocessing nn nn.init nn.modules nn.parallel nn.utils nn.utils.parametrizations nn.utils.prune "
        "nn.utils.rnn optim.lr_scheduler optim.swa_utils profiler sparse special utils utils.checkpoint "
        "utils.data.dataloader utils.data.dataset utils.data.distributed utils.data.sampler",
    ),
    "numpy": _modules("numpy", "fft lib linalg ma polynomial random typing"),
    "scipy": _modules(
        "scipy",
        "cluster constants fft integrate interpolate io ndimage optimize signal sparse.csgraph sparse.linalg spatial "
        "spatial.distance special",
    ),
    "sklearn": _modules(
        "sklearn",
        "calibration cluster compose covariance cross_decomposition decomposition discriminant_analysis dummy ensemble "
        "feature_extraction feature_extraction.text feature_selection gaussian_process impute inspection isotonic "
        "kernel_approximation kernel_ridge linear_model manifold mixture multiclass multioutput naive_bayes neighbors "
        "neural_network pipeline preprocessing random_projection semi_supervised svm tree utils",
    ),
    "pandas": _modules("pandas", "api.types tseries.offsets"),
}
# Packages that import a framework, and which one.
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
# Of a code folder.
_MAX_ENTRIES = 5000
_MAX_SOURCES = 200
_MAX_SOURCE_BYTES = 256 * 1024


@dataclass(slots=True)
class CodeSummary:
    """What a program's code folder reveals without running it.

    `imported` are all modules that it imports by name. `importable_names` are the modules at its top level and next to
    its script; `all_names` are the names of all its files and folders. If it is not complete, the folder holds more
    than was scanned.
    """

    frameworks: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    imported: set[str] = field(default_factory=set)
    importable_names: set[str] = field(default_factory=set)
    all_names: set[str] = field(default_factory=set)
    is_complete: bool = True


def summarize_code(code: Path, script: str) -> CodeSummary:
    """Scan a code folder without following links; OSError if it does not exist."""
    source = CodeSummary()
    imported: set[str] = set()
    folders: tuple[list[str], list[str]] = ([], list(PurePosixPath(script).parts[:-1]))
    sources = 0
    with ConfinedFolder.open(code.parent, code.name) as opened:
        for number, entry in enumerate(opened.walk()):
            name = entry.name.partition(".")[0]
            source.all_names.add(name)
            if entry.above in folders:
                source.importable_names.add(name)
            if entry.name.endswith(".py") and sources < _MAX_SOURCES:
                sources += 1
                imported |= imported_modules(entry.read(limit_bytes=_MAX_SOURCE_BYTES))
            if number >= _MAX_ENTRIES:
                source.is_complete = False
                break
    source.imported = imported
    source.frameworks = used_frameworks(imported)
    source.modules = preloads(source.frameworks, imported)
    return source


def imported_modules(text: bytes) -> set[str]:
    """Return the modules that a source imports by name, anywhere in it."""
    found: set[str] = set()
    for match in _IMPORT.finditer(text):
        names = (match["origin"] or match["names"]).decode(errors="replace")
        found.update(words[0] for name in names.split(",") if (words := name.split()))
    return {name for name in found if _MODULE.fullmatch(name)}


def used_frameworks(imported: Iterable[str]) -> tuple[str, ...]:
    tops = {name.partition(".")[0] for name in imported}
    return tuple(sorted({_BUILT_ON.get(top, top) for top in tops} & PRELOADS.keys()))


def preloads(frameworks: Sequence[str], imported: Iterable[str]) -> tuple[str, ...]:
    """Return the modules to import for these frameworks: those most programs need, then those a program names."""
    known = [module for framework in frameworks for module in PRELOADS[framework]]
    named = [name for framework in frameworks for name in sorted(_IMPORTED_IF_NAMED[framework] & set(imported))]
    return tuple(dict.fromkeys((*known, *named)))


def is_known(module: str) -> bool:
    """Return whether a worker may import a module in advance."""
    framework = module.partition(".")[0]
    return module in PRELOADS.get(framework, ()) or module in _IMPORTED_IF_NAMED.get(framework, ())

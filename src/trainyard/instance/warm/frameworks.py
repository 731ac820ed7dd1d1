"""What is worth importing before a program asks for it, and which programs ask for it: told by their source."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from trainyard.foundation.confined import ConfinedFolder

# Of each framework, the modules that take long and that most programs need. The first optimizer imports torch._dynamo.
PRELOADS: dict[str, tuple[str, ...]] = {
    "torch": ("torch", "torch.utils.data", "torch.optim", "torch._dynamo", "torch.distributed", "torch.nn.functional"),
    "numpy": ("numpy",),
    "scipy": ("scipy", "scipy.sparse", "scipy.linalg", "scipy.stats"),
    "sklearn": ("sklearn", "sklearn.base", "sklearn.datasets", "sklearn.metrics", "sklearn.model_selection"),
    "pandas": ("pandas",),
}


def _modules(framework: str, names: str) -> frozenset[str]:
    return frozenset(f"{framework}.{name}" for name in names.split())


# What else a worker imports of a framework when the code of a program names it. The code is a user's, and a worker has
# the rights of the yard: so no name comes from there that is not here. None of these does more than define things when
# it is imported: it starts no thread or process, opens no file, and reads no arguments.
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
_MOST_ENTRIES = 5000  # of a code folder that is looked through
_MOST_SOURCES = 200
_MOST_BYTES = 256 * 1024  # of one source


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
    """Look through a code folder without following a link; OSError when there is none."""
    source = Source()
    imported: set[str] = set()
    folders: tuple[list[str], list[str]] = ([], list(PurePosixPath(script).parts[:-1]))
    sources = 0
    with ConfinedFolder.open(code.parent, code.name) as opened:
        for number, entry in enumerate(opened.walk()):
            name = entry.name.partition(".")[0]
            source.inner.add(name)
            if entry.above in folders:
                source.top.add(name)
            if entry.name.endswith(".py") and sources < _MOST_SOURCES:
                sources += 1
                imported |= imported_modules(entry.read(limit_bytes=_MOST_BYTES))
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
    """The modules to import for these frameworks: those that everybody needs, then known ones that a program names."""
    known = [module for framework in frameworks for module in PRELOADS[framework]]
    named = [name for framework in frameworks for name in sorted(_IMPORTED_IF_NAMED[framework] & set(imported))]
    return tuple(dict.fromkeys((*known, *named)))


def is_known(module: str) -> bool:
    """Whether a worker may import a module before a program does."""
    framework = module.partition(".")[0]
    return module in PRELOADS.get(framework, ()) or module in _IMPORTED_IF_NAMED.get(framework, ())

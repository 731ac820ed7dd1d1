"""Hooks for Keras."""

from importlib.util import find_spec

if find_spec("tensorflow") is None:
    raise ImportError(
        "smdebug.tensorflow needs TensorFlow, which this environment does not have. Install tensorflow; "
        "smdebug.trials works without it.",
        name=__name__,
    )

from ..core.collection import Collection, CollectionKeys
from ..names import ReductionConfig, SaveConfig, SaveConfigMode, modes
from ..trials import create_trial
from .keras import KerasHook
from .session import EstimatorHook, SessionHook
from .singleton_utils import del_hook, get_hook, set_hook

__all__ = [
    "Collection",
    "CollectionKeys",
    "EstimatorHook",
    "KerasHook",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "SessionHook",
    "create_trial",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]

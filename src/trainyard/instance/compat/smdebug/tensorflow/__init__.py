"""Hooks for TensorFlow's Keras, and what goes with them."""

from importlib.util import find_spec

if find_spec("tensorflow") is None:
    raise ImportError(
        "smdebug.tensorflow is not here: TensorFlow is not in this environment. Install tensorflow beside it; "
        "smdebug.trials reads what hooks have saved without it.",
        name=__name__,
    )

from ..core.collection import Collection, CollectionKeys
from ..names import ReductionConfig, SaveConfig, SaveConfigMode, modes
from ..trials import create_trial
from .keras import KerasHook
from .sessions import EstimatorHook, SessionHook
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

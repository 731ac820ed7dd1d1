"""The names of `import smdebug`. Imports no framework."""

from .core.collection import CollectionKeys
from .core.modes import ModeKeys as modes  # noqa: N813
from .core.reduction_config import ReductionConfig
from .core.save_config import SaveConfig, SaveConfigMode

# The interface is that of 1.0.34.
__version__ = "1.0.34+trainyard"

__all__ = ["CollectionKeys", "ReductionConfig", "SaveConfig", "SaveConfigMode", "__version__", "modes"]

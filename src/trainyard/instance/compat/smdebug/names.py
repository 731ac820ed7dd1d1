"""What `import smdebug` has. No framework is imported by it."""

from .core.collection import CollectionKeys
from .core.modes import ModeKeys as modes  # noqa: N813  # which is how it is spelled there
from .core.reduction_config import ReductionConfig
from .core.save_config import SaveConfig, SaveConfigMode

__version__ = "1.0.34+trainyard"  # the interface is that of 1.0.34

__all__ = ["CollectionKeys", "ReductionConfig", "SaveConfig", "SaveConfigMode", "__version__", "modes"]

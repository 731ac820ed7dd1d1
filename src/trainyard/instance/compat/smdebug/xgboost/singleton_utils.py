"""The hook of this process, for XGBoost."""

from typing import TYPE_CHECKING, cast

from ..core import singleton_utils
from ..core.singleton_utils import del_hook, set_hook

if TYPE_CHECKING:
    from .hook import Hook

__all__ = ["del_hook", "get_hook", "set_hook"]


def get_hook(json_config_path: str | None = None) -> "Hook | None":
    """Return the hook of this process, or create it from the job's configuration. None with USE_SMDEBUG=0."""
    from .hook import Hook

    if singleton_utils.is_switched_off():
        return None
    hook = singleton_utils.get_hook(json_config_path=json_config_path, hook_class=Hook, create_if_not_exists=True)
    return cast("Hook | None", hook)

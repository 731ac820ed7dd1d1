"""The hook of this process, for Keras."""

from typing import TYPE_CHECKING, cast

from ..core import singleton_utils
from ..core.singleton_utils import del_hook, set_hook

if TYPE_CHECKING:
    from .keras import KerasHook

__all__ = ["del_hook", "get_hook", "set_hook"]


def get_hook(
    hook_type: str | None = "keras", json_config_path: str | None = None, create_if_not_exists: bool = False
) -> "KerasHook | None":
    """Return the hook of this process, or create it from the job's configuration. None with USE_SMDEBUG=0."""
    from .keras import KerasHook

    if hook_type not in (None, "keras"):
        raise ValueError(f'The hook type "{hook_type}" is not supported; use "keras".')
    if singleton_utils.is_switched_off():
        return None
    hook = singleton_utils.get_hook(
        json_config_path=json_config_path, hook_class=KerasHook, create_if_not_exists=create_if_not_exists
    )
    return cast("KerasHook | None", hook)

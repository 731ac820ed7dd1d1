"""The one hook of a process, for Keras."""

from typing import TYPE_CHECKING, cast

from ..core import singleton_utils
from ..core.singleton_utils import del_hook, set_hook

if TYPE_CHECKING:
    from .keras import KerasHook

__all__ = ["del_hook", "get_hook", "set_hook"]


def get_hook(
    hook_type: str | None = "keras", json_config_path: str | None = None, create_if_not_exists: bool = False
) -> "KerasHook | None":
    """The hook, or one that the job's configuration makes if asked for; None without either, and with USE_SMDEBUG=0."""
    from .keras import KerasHook

    if hook_type not in (None, "keras"):
        raise ValueError(f'"{hook_type}" is no kind of hook here; the kind is keras.')
    if singleton_utils.is_switched_off():
        return None
    found = singleton_utils.get_hook(
        json_config_path=json_config_path, hook_class=KerasHook, create_if_not_exists=create_if_not_exists
    )
    return cast("KerasHook | None", found)

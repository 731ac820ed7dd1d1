"""The hook of this process."""

import os
from typing import TYPE_CHECKING

from ..exceptions import SMDebugTypeError

if TYPE_CHECKING:
    from .hook import BaseHook

_hook: "BaseHook | None" = None


def get_hook(
    *, json_config_path: str | None = None, hook_class: "type[BaseHook] | None" = None, create_if_not_exists: bool
) -> "BaseHook | None":
    """Return the hook if it is of the class; else create one from a configuration, if asked to and there is one."""
    global _hook
    if hook_class is None:
        if create_if_not_exists:
            raise ValueError("Creating a hook needs its class: set hook_class.")
        return _hook
    if not isinstance(_hook, hook_class):
        _hook = None
    if _hook is None and create_if_not_exists:
        try:
            _hook = hook_class.create_from_json_file(json_config_path)
        except FileNotFoundError:
            return None
    return _hook


def is_switched_off() -> bool:
    """Whether the environment disables hooks."""
    return os.environ.get("USE_SMDEBUG", "true").lower() in ("0", "false", "no", "off", "n", "f")


def set_hook(custom_hook: "BaseHook") -> None:
    """Set the hook of this process."""
    from .hook import BaseHook

    global _hook
    if not isinstance(custom_hook, BaseHook):
        raise SMDebugTypeError(f"{custom_hook!r} is not a hook.")
    _hook = custom_hook


def del_hook() -> None:
    """Forget the hook of this process. The hook itself stays attached."""
    global _hook
    _hook = None

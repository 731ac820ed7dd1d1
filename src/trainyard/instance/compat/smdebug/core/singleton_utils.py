"""The one hook of a process."""

import os
from typing import TYPE_CHECKING

from ..exceptions import SMDebugTypeError

if TYPE_CHECKING:
    from .hook import BaseHook

_hook: "BaseHook | None" = None


def get_hook(
    *, json_config_path: str | None = None, hook_class: "type[BaseHook] | None" = None, create_if_not_exists: bool
) -> "BaseHook | None":
    """The hook, where it is one of the class; else one that a configuration makes, if asked for and there is any."""
    global _hook
    if hook_class is None:
        if create_if_not_exists:
            raise ValueError("A hook can only be made of a class: give hook_class.")
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
    """Whether the environment says that no hook is to be made."""
    return os.environ.get("USE_SMDEBUG", "true").lower() in ("0", "false", "no", "off", "n", "f")


def set_hook(custom_hook: "BaseHook") -> None:
    """Make a hook the one of this process."""
    from .hook import BaseHook

    global _hook
    if not isinstance(custom_hook, BaseHook):
        raise SMDebugTypeError(f"{custom_hook!r} is no hook.")
    _hook = custom_hook


def del_hook() -> None:
    """Forget the hook, which goes on as it is."""
    global _hook
    _hook = None

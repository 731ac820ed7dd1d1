"""Makes the engines that a yard's settings name."""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path

from trainyard.engines.container.store import ImageStore
from trainyard.engines.contract import Engine
from trainyard.engines.local import LocalEngine
from trainyard.engines.several import Engines
from trainyard.foundation.engine_names import CONTAINER, LOCAL, RAY
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.home import Home
from trainyard.server.settings import ServerSettings

Opener = Callable[[Home, ServerSettings], Engine]


def open_engines(home: Home, settings: ServerSettings) -> Engines:
    """Those of the setting `engines`, the first of which is the default.

    InvalidRequest, saying what to do, when one does not exist, is named twice, or lacks a part on this machine.
    """
    names = engine_names(settings)
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f'The setting `engines` names "{name}" more than once; name each engine once.')
    return Engines([open_engine(name, home, settings=settings) for name in names])


def engine_names(settings: ServerSettings) -> tuple[str, ...]:
    """The names in the setting `engines`, in their order."""
    names = tuple(name.strip() for name in settings.engines.split(",") if name.strip())
    if not names:
        raise InvalidRequest(f"The setting `engines` names no engine; {_known()}.")
    return names


def open_engine(name: str, home: Home, *, settings: ServerSettings) -> Engine:
    """The engine of that name; InvalidRequest when there is none, or a part of it is missing."""
    if name in _OPENERS:
        return _OPENERS[name](home, settings)
    if ":" in name:
        return _own(name)(home.jobs, home.agents)
    raise _unknown(name)


def image_store(settings: ServerSettings) -> ImageStore | None:
    """The container images of this machine; None where no engine runs them."""
    return ImageStore(settings.container_tool) if CONTAINER in engine_names(settings) else None


def require_parts(name: str, settings: ServerSettings) -> None:
    """InvalidRequest when an engine does not exist or lacks a part on this machine; nothing is started to find out."""
    if name == RAY:
        from trainyard.engines.ray import require_ray

        require_ray(settings.ray_python)
    elif name == CONTAINER:
        from trainyard.engines.container.tool import find_tool

        find_tool(settings.container_tool)
    elif ":" in name:
        _own(name)
    elif name not in _OPENERS:
        raise _unknown(name)


def _open_local(home: Home, settings: ServerSettings) -> Engine:
    return LocalEngine(home.jobs, home.agents, slots=settings.slots or None)


def _open_ray(home: Home, settings: ServerSettings) -> Engine:
    from trainyard.engines.ray import open_ray_engine

    return open_ray_engine(
        home.jobs,
        work=home.ray,
        address=settings.ray_address,
        token=settings.ray_token,
        python=settings.ray_python,
        folder=settings.ray_folder,
        lease=settings.lease,
    )


def _open_container(home: Home, settings: ServerSettings) -> Engine:
    from trainyard.engines.container import open_container_engine

    return open_container_engine(
        home.jobs,
        home.agents,
        tool=settings.container_tool,
        options=settings.container_options,
        slots=settings.slots or None,
    )


def _own(name: str) -> Callable[[Path, Path], Engine]:
    """What makes an engine of somebody's own, by `package.module:function`."""
    module, _, function = name.partition(":")
    try:
        make: Callable[[Path, Path], Engine] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidRequest(
            f'The setting `engines` names "{name}", which cannot be imported: {error}. Install what it is part of into '
            "the Python that runs the yard, or take it out of the setting."
        ) from error
    return make


def _unknown(name: str) -> InvalidRequest:
    return InvalidRequest(f'The setting `engines` names "{name}", which is no engine; {_known()}.')


def _known() -> str:
    return f"write some of {', '.join(_OPENERS)} separated by commas, or package.module:function for one of your own"


_OPENERS: Mapping[str, Opener] = {LOCAL: _open_local, RAY: _open_ray, CONTAINER: _open_container}

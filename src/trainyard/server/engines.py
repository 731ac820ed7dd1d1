"""Opens the engines that a yard's settings name."""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path

from trainyard.engines.container.store import ImageStore
from trainyard.engines.contract import Engine
from trainyard.engines.engine_set import EngineSet
from trainyard.engines.local import LocalEngine
from trainyard.foundation.engine_names import CONTAINER, LOCAL, RAY
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.home import Home
from trainyard.server.settings import ServerSettings

EngineOpener = Callable[[Home, ServerSettings], Engine]


def open_engines(home: Home, settings: ServerSettings) -> EngineSet:
    """Open the engines of the setting `engines`. The first is the default.

    InvalidRequest, with what to do, when an engine is unknown, named twice, or needs something this machine lacks.
    """
    names = engine_names(settings)
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f'The setting `engines` names "{name}" more than once; name each engine once.')
    return EngineSet([open_engine(name, home, settings=settings) for name in names])


def engine_names(settings: ServerSettings) -> tuple[str, ...]:
    """Return the names in the setting `engines`, in order."""
    names = tuple(name.strip() for name in settings.engines.split(",") if name.strip())
    if not names:
        raise InvalidRequest(f"The setting `engines` names no engine; {_engine_choices()}.")
    return names


def require_known_engines(text: str) -> None:
    """Raise InvalidRequest for a value of the setting `engines` that names none, or one that does not exist."""
    for name in engine_names(ServerSettings(engines=text)):
        if name not in _OPENERS and ":" not in name:
            raise _unknown_engine_error(name)


def open_engine(name: str, home: Home, *, settings: ServerSettings) -> Engine:
    """Open an engine. InvalidRequest when it is unknown or this machine lacks something that it needs."""
    if name in _OPENERS:
        return _OPENERS[name](home, settings)
    if ":" in name:
        return _import_custom(name)(home.jobs, home.agents)
    raise _unknown_engine_error(name)


def open_image_store(settings: ServerSettings) -> ImageStore | None:
    """Open the container images of this machine. None when no engine uses them."""
    return ImageStore(settings.container_tool) if CONTAINER in engine_names(settings) else None


def require_engine(name: str, settings: ServerSettings) -> None:
    """Raise InvalidRequest when an engine is unknown or this machine lacks something that it needs. Starts nothing."""
    if name == RAY:
        from trainyard.engines.ray import require_ray

        require_ray(settings.ray_python)
    elif name == CONTAINER:
        from trainyard.engines.container.tool import find_tool

        find_tool(settings.container_tool)
    elif ":" in name:
        _import_custom(name)
    elif name not in _OPENERS:
        raise _unknown_engine_error(name)


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


def _import_custom(name: str) -> Callable[[Path, Path], Engine]:
    """Import the function that makes a custom engine, named by `package.module:function`."""
    module, _, function = name.partition(":")
    try:
        make: Callable[[Path, Path], Engine] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidRequest(
            f'The setting `engines` names "{name}", which cannot be imported: {error}. Install its package into '
            "the Python that runs the yard, or remove it from the setting."
        ) from error
    return make


def _unknown_engine_error(name: str) -> InvalidRequest:
    return InvalidRequest(f'The setting `engines` names "{name}", which is not an engine; {_engine_choices()}.')


def _engine_choices() -> str:
    return f"write one or more of {', '.join(_OPENERS)}, separated by commas, or package.module:function for your own"


_OPENERS: Mapping[str, EngineOpener] = {LOCAL: _open_local, RAY: _open_ray, CONTAINER: _open_container}

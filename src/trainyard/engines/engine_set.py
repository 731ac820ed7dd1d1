"""The engines of one yard."""

import logging
from collections.abc import Iterator, Sequence

from trainyard.engines.contract import Engine
from trainyard.foundation.errors import InvalidRequest, TrainyardError, Unavailable

log = logging.getLogger(__name__)


class EngineSet:
    """A yard's engines by name. The first is the default, for jobs that neither a tag nor a rule sends elsewhere."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        """Raises InvalidRequest if two engines have the same name."""
        self._engines = {engine.name: engine for engine in engines}
        if len(self._engines) != len(engines):
            names = ", ".join(engine.name for engine in engines)
            raise InvalidRequest(f"A yard can have each engine only once, not {names}.")
        self.default = engines[0]

    def __getitem__(self, name: str) -> Engine:
        """Raises Unavailable if the yard was started without that engine. Its jobs wait until the yard has it again."""
        if not name:
            return self.default
        try:
            return self._engines[name]
        except KeyError:
            raise Unavailable(f'This yard was started without the engine "{name}".') from None

    def __iter__(self) -> Iterator[Engine]:
        return iter(self._engines.values())

    def __contains__(self, name: str) -> bool:
        return name in self._engines

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._engines)

    def queue_of(self, name: str) -> str:
        """Return the name of the queue in which the jobs of an engine wait.

        Engines on the yard's own machine share one queue, because they share its slots and GPUs. Every other engine
        has its own, even one that the yard was started without.
        """
        name = name or self.default.name
        if name not in self._engines or not self._engines[name].is_here:
            return name
        return next(engine.name for engine in self if engine.is_here)

    def close(self) -> None:
        """Close all engines, even if closing one fails."""
        for engine in self:
            try:
                engine.close()
            except (TrainyardError, OSError):
                log.warning("closing an engine failed", exc_info=True, extra={"engine": engine.name})

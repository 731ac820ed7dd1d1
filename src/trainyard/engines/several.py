"""The engines of one yard."""

import logging
from collections.abc import Iterator, Sequence

from trainyard.engines.contract import Engine
from trainyard.foundation.errors import InvalidRequest, TrainyardError, Unavailable

log = logging.getLogger(__name__)


class Engines:
    """A yard's engines by their names. The first runs the jobs that nothing sends to another one."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        """InvalidRequest when two have the same name."""
        self._engines = {engine.name: engine for engine in engines}
        if len(self._engines) != len(engines):
            raise InvalidRequest(f"A yard has each engine once, not {', '.join(engine.name for engine in engines)}.")
        self.first = engines[0]

    def __getitem__(self, name: str) -> Engine:
        """Unavailable when the yard was started without that engine; its jobs wait until it is started with it."""
        if not name:
            return self.first
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

    def line_of(self, name: str) -> str:
        """The line that the jobs of an engine wait in, whose jobs that run are those they are placed beside.

        Engines on the yard's own machine share one, because they hand out the same slots and GPUs. Any other has its
        own, also one that the yard was started without.
        """
        name = name or self.first.name
        if name not in self._engines or not self._engines[name].is_here:
            return name
        return next(engine.name for engine in self if engine.is_here)

    def close(self) -> None:
        """Close each of them; what goes wrong with one does not keep the others open."""
        for engine in self:
            try:
                engine.close()
            except (TrainyardError, OSError):
                log.warning("an engine could not be closed", exc_info=True, extra={"engine": engine.name})

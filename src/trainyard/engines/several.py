"""The engines of one yard."""

from collections.abc import Iterator, Sequence

from trainyard.engines.contract import Engine
from trainyard.foundation.errors import Unavailable


class Engines:
    """A yard's engines by their names. The first runs the jobs that nothing sends to another one."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engines = {engine.name: engine for engine in engines}
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

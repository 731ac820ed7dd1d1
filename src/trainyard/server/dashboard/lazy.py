"""The dashboard, made when a browser first asks for a page: its libraries take 0.1 s and 10 MB."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from trainyard.foundation.clock import Clock
from trainyard.server.http.body import BodyIntake
from trainyard.server.services.contract import Yard
from trainyard.wire.models import Models

if TYPE_CHECKING:
    from trainyard.server.dashboard.app import Dashboard


class LazyDashboard:
    """The ASGI callable of the dashboard."""

    def __init__(
        self, yard: Yard, models: Models, clock: Clock, bodies: BodyIntake, *, region: str, hosts: Iterable[str]
    ) -> None:
        self._yard, self._models, self._clock, self._bodies = yard, models, clock, bodies
        self._region, self._hosts = region, tuple(hosts)
        self._dashboard: Dashboard | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._dashboard is None:
            from trainyard.server.dashboard.app import Dashboard

            self._dashboard = Dashboard(
                self._yard, self._models, self._clock, self._bodies, region=self._region, hosts=self._hosts
            )
        await self._dashboard(scope, receive, send)

    def close(self) -> None:
        """End the streams of open pages, so that the yard can stop."""
        if self._dashboard is not None:
            self._dashboard.close()

"""Runs jobs in their container images, with podman or docker."""

from trainyard.engines.container.engine import ContainerEngine, open_container_engine

__all__ = ["ContainerEngine", "open_container_engine"]

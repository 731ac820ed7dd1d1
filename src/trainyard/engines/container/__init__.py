"""Jobs in container images, which podman or docker run."""

from trainyard.engines.container.engine import ContainerEngine, open_container_engine

__all__ = ["ContainerEngine", "open_container_engine"]

"""Runs instances as processes of this machine."""

from trainyard.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]

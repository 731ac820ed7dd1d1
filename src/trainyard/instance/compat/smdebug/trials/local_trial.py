"""Where scripts also import it from."""

from .trial import LocalTrial

__all__ = ["LocalTrial"]

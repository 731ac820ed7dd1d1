"""Where scripts also import it from."""

from .trial import create_trial

__all__ = ["create_trial"]

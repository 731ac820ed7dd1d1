"""Where scripts also import it from."""

from .trial import S3Trial

__all__ = ["S3Trial"]

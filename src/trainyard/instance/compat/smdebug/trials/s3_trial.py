"""An import path of smdebug."""

from .trial import S3Trial

__all__ = ["S3Trial"]

"""Unsupported: hooks here do not write smdebug's files."""

from ..unsupported import unsupported_names

__getattr__ = unsupported_names(
    __name__, "TSAccessFile", "TSAccessS3", "check_dir_exists", "has_training_ended", "training_has_ended"
)

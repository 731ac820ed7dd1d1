"""Unsupported: there is nothing to configure, because a failing hook never reaches the training."""

from ..unsupported import unsupported_names

__getattr__ = unsupported_names(
    __name__,
    "ErrorHandlingAgent",
    because="a hook never lets an error of its own reach the training, whatever its configuration",
)

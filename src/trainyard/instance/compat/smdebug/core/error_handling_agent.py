"""Says that there is nothing to set: what fails in a hook never reaches the training."""

from ..absence import not_served

__getattr__ = not_served(
    __name__,
    "ErrorHandlingAgent",
    because="a hook never lets an error of its own reach the training, however it is set up",
)

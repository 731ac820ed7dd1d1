"""Says that hooks for the first TensorFlow are not here."""

from typing import Any

from ..exceptions import SMDebugNotImplementedError


class SessionHook:
    """For sessions of TensorFlow 1, which this project has no hook for."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        raise SMDebugNotImplementedError(
            f"{type(self).__name__} is for sessions of TensorFlow 1, and Trainyard's stand-in has hooks for Keras: use "
            "KerasHook as a callback of fit()."
        )


class EstimatorHook(SessionHook):
    """For estimators, which TensorFlow has no more."""

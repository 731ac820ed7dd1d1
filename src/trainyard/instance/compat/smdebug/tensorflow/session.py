"""Unsupported: hooks for TensorFlow 1."""

from typing import Any

from ..exceptions import SMDebugNotImplementedError


class SessionHook:
    """Raises: there is no hook for sessions of TensorFlow 1."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        raise SMDebugNotImplementedError(
            f"{type(self).__name__} is for TensorFlow 1, which Trainyard's smdebug does not support. Use KerasHook as "
            "a callback of fit()."
        )


class EstimatorHook(SessionHook):
    """Raises: TensorFlow has removed estimators."""

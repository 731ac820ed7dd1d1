"""Unsupported: MXNet."""

raise ImportError(
    "smdebug.mxnet is not available: MXNet has been retired, and Trainyard's smdebug has no hook for it. There are "
    "hooks in smdebug.pytorch, smdebug.xgboost and smdebug.tensorflow (Keras); smdebug.trials reads what MXNet jobs "
    "have saved.",
    name=__name__,
)

"""Says that there is no part for this framework."""

raise ImportError(
    "smdebug.mxnet is not here: MXNet has been retired, and Trainyard's stand-in has no hook for it. Hooks are "
    "smdebug.pytorch, smdebug.xgboost and smdebug.tensorflow (Keras); smdebug.trials reads what MXNet jobs have saved.",
    name=__name__,
)

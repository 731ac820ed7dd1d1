"""Unsupported: TensorFlow."""

raise ImportError(
    "smdistributed.modelparallel.tensorflow is not available: AWS's library is not public, and Trainyard's replacement "
    "supports only PyTorch (smdistributed.modelparallel.torch).",
    name=__name__,
)

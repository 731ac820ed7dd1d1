"""Says that there is no part for TensorFlow."""

raise ImportError(
    "smdistributed.modelparallel.tensorflow is not here: AWS's library is not public, and Trainyard's stand-in "
    "speaks for PyTorch alone (smdistributed.modelparallel.torch).",
    name=__name__,
)

"""Says that there is no part for TensorFlow."""

raise ImportError(
    "smdistributed.dataparallel.tensorflow is not here: AWS's library is not public, and Trainyard's stand-in "
    "speaks for PyTorch alone. Use tf.distribute.MultiWorkerMirroredStrategy.",
    name=__name__,
)

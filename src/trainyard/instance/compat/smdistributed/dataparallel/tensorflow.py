"""Unsupported: TensorFlow."""

raise ImportError(
    "smdistributed.dataparallel.tensorflow is not available: AWS's library is not public, and Trainyard's replacement "
    "supports only PyTorch. Use tf.distribute.MultiWorkerMirroredStrategy.",
    name=__name__,
)

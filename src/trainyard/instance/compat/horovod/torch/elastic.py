"""Unsupported: the ranks of a job never change."""

raise ImportError(
    "horovod.torch.elastic is not available: the ranks of a training job never change, and an interrupted job starts "
    "again. Write checkpoints to the checkpoint path, and load the last one at the start.",
    name=__name__,
)

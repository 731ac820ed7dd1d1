"""Inside the training process: captures tensors and steps, and never blocks or breaks the training."""

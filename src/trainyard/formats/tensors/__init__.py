"""What the tensors of a training looked like, step by step: written beside the training, read by anyone, any time."""

"""The hook for PyTorch: observes models, losses and optimizers, attached by hand or without changing the program."""

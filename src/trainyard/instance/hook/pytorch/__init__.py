"""The hook for PyTorch: it sees models, losses and optimizers at work, by hand or without a change of the program."""

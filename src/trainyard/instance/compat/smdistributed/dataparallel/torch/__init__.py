"""The parts for PyTorch: `torch_smddp` is a back end for torch.distributed, the others are the older interface."""

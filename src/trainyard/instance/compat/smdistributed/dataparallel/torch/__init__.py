"""The PyTorch interface: `torch_smddp` is a back end of torch.distributed; the others are the older interface."""

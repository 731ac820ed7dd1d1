"""What a trace of torch.profiler says: where the time of steps goes, and which operators and kernels take it."""

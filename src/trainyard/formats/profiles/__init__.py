"""What profiling writes: samples of the hardware, times of steps, traces, and the same in AWS's formats."""

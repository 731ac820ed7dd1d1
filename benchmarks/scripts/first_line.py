"""Prints when its first line runs, in nanoseconds since the epoch."""

import time

print(time.time_ns(), flush=True)

"""Prints the moment twice a second, as a metric."""

import time

while True:
    print(f"sent={time.time():.3f}", flush=True)
    time.sleep(0.5)

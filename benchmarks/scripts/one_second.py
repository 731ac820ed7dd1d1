"""Runs for one second."""

import time

time.sleep(1)
print("done")

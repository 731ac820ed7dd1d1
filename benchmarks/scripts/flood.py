"""Writes numbered lines at a steady rate: `flood.py --rate MB-PER-SECOND --seconds N`."""

import argparse
import os
import time

# Bytes: the mean length of a line in the logs that the design is based on.
LINE = 104
TICK_S = 0.02

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--seconds", type=float)
options = parser.parse_args()

lines_per_tick = int(options.rate * 1e6 * TICK_S / LINE)
filling = b" " + b"x" * (LINE - 22) + b"\n"
number = 0
begun = time.monotonic()
for tick in range(int(options.seconds / TICK_S)):
    block = memoryview(b"".join(b"%020d%s" % (each, filling) for each in range(number, number + lines_per_tick)))
    number += lines_per_tick
    time.sleep(max(0.0, begun + tick * TICK_S - time.monotonic()))
    while block:
        block = block[os.write(1, block) :]
print(f"wrote {number} lines in {time.monotonic() - begun:.3f} s", flush=True)

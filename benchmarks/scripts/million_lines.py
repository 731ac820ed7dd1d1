"""Prints a million lines."""

import sys

for thousand in range(1000):
    sys.stdout.write("".join(f"step {thousand * 1000 + step}\n" for step in range(1000)))

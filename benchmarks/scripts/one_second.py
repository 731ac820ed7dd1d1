"""Takes a second."""

import time

time.sleep(1)
print("done")

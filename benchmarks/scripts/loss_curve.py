"""Prints 200 values of a loss and of an accuracy."""

for step in range(200):
    print(f"loss={2 / (step + 1):.4f} accuracy={step / 200:.4f}", flush=True)

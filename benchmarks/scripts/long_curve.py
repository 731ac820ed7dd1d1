"""Prints the values of a noisy loss. `--run` shifts the curve."""

import argparse
import math


def loss(run: int, step: int) -> float:
    return math.exp(-step / 3000) + run / 50 + step * 7919 % 100 / 500


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", type=int, required=True)
    parser.add_argument("--points", type=int, required=True)
    arguments = parser.parse_args()
    for step in range(arguments.points):
        print(f"loss={loss(arguments.run, step):.5f}")


if __name__ == "__main__":
    main()

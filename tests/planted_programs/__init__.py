"""Small training scripts, each with one planted fault, which the verdict on its profile has to name.

Their options mend the fault, or make it another way. They train for `--seconds`.
"""

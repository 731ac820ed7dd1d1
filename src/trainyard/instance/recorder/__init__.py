"""The flight recorder: keeps what is needed to replay the last steps of a training, and writes it when a rule fires.

For every step it keeps references to the inputs, and the states of the random generators. It also copies the weights
and the optimizer state before the step. If a copy before each step would take more than a small share of the training
time, it copies every few steps, and a replay reaches a later step by running those in between.

states.py copies weights, optimizers and random states, inputs.py keeps batches, arguments and targets, and
flight_recorder.py holds the ring of steps in the process that trains. records.py stores a record on disk, and replay.py
runs it again. observers.py chooses which of these follow a training. checkpoint.py saves a checkpoint that a rule
requests before the training stops.
"""

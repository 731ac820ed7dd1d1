"""The flight recorder: keeps what is needed to run the last steps of a training again, and writes it when a rule fires.

Of every step it keeps what goes in, by reference, and the states of the random generators; of the weights and the state
of the optimizers a copy as they were before the step. Where copying each time would take more than a small share of the
training's time, a copy is made every so many steps, and a later step is reached again by running those since.

states.py      copies of weights and optimizers, and random states
inputs.py      what goes into a step: batches, arguments, targets of losses
recording.py   the ring of steps, in the process that trains
records.py     a record on disk
replaying.py   runs a recorded step again
observers.py   which of these follow a training
checkpoint.py  a checkpoint that a rule wants before the training is stopped
"""

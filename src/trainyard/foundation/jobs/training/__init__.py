"""The values of a training job: its plan, its state, how it changes state, and what follows from both."""

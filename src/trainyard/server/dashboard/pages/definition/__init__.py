"""The definition of a training job: to read, to copy, and to start the next job from."""

"""The files of a training job: inputs, code, results and checkpoints, with previews."""

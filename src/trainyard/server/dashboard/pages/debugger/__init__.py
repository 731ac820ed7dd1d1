"""The debugger of a training job: rules and their evidence, tensors by layer and step, recorded steps to replay."""

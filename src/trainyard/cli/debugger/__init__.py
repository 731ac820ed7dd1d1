"""Commands for captured tensors: rules, tensors and the replay of recorded steps."""

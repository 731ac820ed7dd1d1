"""The rules on tensors, one file each."""

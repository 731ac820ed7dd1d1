"""The module paths under which the sagemaker SDK has what belongs to its own algorithms."""

"""Module paths of the sagemaker SDK for its built-in algorithms."""

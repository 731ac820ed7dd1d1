"""Commands about where models come from, and the model registry."""

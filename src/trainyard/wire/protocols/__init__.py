"""The AWS protocols: one codec each, compiled from the service models."""

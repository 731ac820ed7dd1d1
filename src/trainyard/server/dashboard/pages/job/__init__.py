"""The overview of a training job."""

"""The values of a processing job: its plan, its state, and its statuses."""

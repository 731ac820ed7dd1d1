"""The data of an instance: channels as files, FIFOs or mounts, and folders that are synced with S3."""

"""The private part of the SDK, which the public modules of `trainyard` and the CLI use."""

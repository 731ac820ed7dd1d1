"""Runs programs in their own images with podman or docker; fulfils the same contract as instance/sandbox."""

"""Buckets and objects: the contract, a local folder, any remote S3."""

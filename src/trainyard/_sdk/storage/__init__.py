"""Files of the user on S3: uploads, downloads, digests, and reading formats in place."""

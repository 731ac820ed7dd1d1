"""FastFile channels of a remote S3: objects as files that are fetched when the program reads them.

A process of its own, `server.py`, answers the kernel's FUSE requests; the agent starts and stops it in `mounts.py`. It
implements the kernel's protocol itself, so that no library has to be installed.
"""

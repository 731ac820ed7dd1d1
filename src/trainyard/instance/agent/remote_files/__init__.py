"""Objects of a remote S3 as files that are read when the program reads them: FastFile channels without the files.

A process of its own, `serving.py`, answers the kernel's FUSE requests; the agent starts and ends it in `mounts.py`. It
speaks the kernel's protocol itself, so that no library has to be installed for it.
"""

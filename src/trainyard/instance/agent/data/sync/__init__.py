"""Syncs a folder of an instance with an S3 location: down before the program starts, up while it runs.

scan.py     what is in the folder at one moment, without following links
changes.py  what to upload or delete, by comparing one scan with the next
inotify.py  when a scan may be worthwhile
restore.py  downloads the objects as files, before the start
upload.py   uploads files as objects, each completely or not at all
batches.py  uploads many files at once, in an order that leaves no dangling references
folder.py   the thread that does it, and the final sync when the program has ended
"""

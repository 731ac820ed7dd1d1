"""Keeps a folder of an instance and an S3 location the same: down before the program starts, up while it runs.

looks.py      what lies in the folder at one moment, never led out of it
changes.py    what of that is to be stored or deleted, from one look to the next
hints.py      inotify: when a look may be worth it
restoring.py  the objects as files, before the start
sending.py    files as objects, each whole or not at all
groups.py     many of them at once, in an order that leaves nothing pointing at what is not there
folder.py     the thread that does it, and the last look when the program has ended
"""

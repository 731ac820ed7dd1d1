"""Encryption of stored objects: the master key, the keys of accounts, and sealed data files.

Three layers: the master key, in a file of its own, encrypts the keys of accounts, which are in the keyring; a key of an
account encrypts the data key of each object, which is in the header of its data file; the data key encrypts the bytes.
"""

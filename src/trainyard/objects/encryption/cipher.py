"""AES-GCM with 256-bit keys. No other module of the object store uses cryptography."""

import os
from typing import Final

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16


class WrongKey(Exception):
    """The data was not encrypted with this key and context, or has changed since."""


class Cipher:
    """Encrypts and decrypts with one key. Safe to share between threads."""

    __slots__ = ("_aes",)

    def __init__(self, key: bytes) -> None:
        # The import takes 30 ms, which agents of jobs without encrypted data save.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        assert len(key) == KEY_BYTES, "the key has 256 bits"
        self._aes = AESGCM(key)

    def encrypt(self, nonce: bytes, data: bytes | memoryview, context: bytes = b"") -> bytes:
        """Return the encrypted data, longer by TAG_BYTES. A nonce must never be used twice with a key."""
        return self._aes.encrypt(nonce, data, context)

    def decrypt(self, nonce: bytes, data: bytes | memoryview, context: bytes = b"") -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            return self._aes.decrypt(nonce, data, context)
        except InvalidTag as error:
            raise WrongKey from error

    def wrap(self, data: bytes, context: bytes = b"") -> bytes:
        """Encrypt with a random nonce, which is stored in front. Safe for 2**32 times with one key."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self.encrypt(nonce, data, context)

    def unwrap(self, data: bytes, context: bytes = b"") -> bytes:
        """Decrypt what `wrap` returned."""
        if len(data) < NONCE_BYTES + TAG_BYTES:
            raise WrongKey
        return self.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], context)

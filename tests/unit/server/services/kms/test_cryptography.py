from typing import Any

import pytest

from tests.unit.server.services.accounts import Accounts
from tests.unit.server.services.kms.test_keys import new_key, refused

CONTEXT = {"job": "mnist", "epoch": "7"}


def test_a_text_needs_the_context_with_which_it_was_encrypted(accounts: Accounts) -> None:
    anna, key = accounts.anna, new_key(accounts.anna)
    sealed = anna("kms", "Encrypt", KeyId=key, Plaintext=b"text", EncryptionContext=CONTEXT)
    blob = sealed["CiphertextBlob"]
    assert (sealed["EncryptionAlgorithm"], b"text" in blob) == ("SYMMETRIC_DEFAULT", False)
    in_another_order = dict(reversed(CONTEXT.items()))
    opened = anna("kms", "Decrypt", CiphertextBlob=blob, EncryptionContext=in_another_order)
    assert (opened["Plaintext"], opened["KeyId"]) == (b"text", sealed["KeyId"])
    for wrong in ({}, {"job": "mnist"}):
        fault = refused(anna, "Decrypt", CiphertextBlob=blob, EncryptionContext=wrong)
        assert fault.code == "InvalidCiphertextException"


@pytest.mark.parametrize("blob", [b"x", b"\x01" * 17, b"\x01" * 100, b"\x02" * 100])
def test_bytes_that_nobody_encrypted_are_invalid(accounts: Accounts, blob: bytes) -> None:
    new_key(accounts.anna)
    assert refused(accounts.anna, "Decrypt", CiphertextBlob=blob).code == "InvalidCiphertextException"


def test_without_a_ciphertext_nothing_is_decrypted(accounts: Accounts) -> None:
    key = new_key(accounts.anna)
    assert refused(accounts.anna, "Decrypt").code == "ValidationException"
    assert refused(accounts.anna, "ReEncrypt", DestinationKeyId=key).code == "ValidationException"


def test_a_named_key_must_be_the_right_one(accounts: Accounts) -> None:
    anna, first, second = accounts.anna, new_key(accounts.anna), new_key(accounts.anna)
    blob = anna("kms", "Encrypt", KeyId=first, Plaintext=b"text")["CiphertextBlob"]
    assert anna("kms", "Decrypt", CiphertextBlob=blob, KeyId=first)["Plaintext"] == b"text"
    assert refused(anna, "Decrypt", CiphertextBlob=blob, KeyId=second).code == "IncorrectKeyException"
    moved = anna("kms", "ReEncrypt", CiphertextBlob=blob, DestinationKeyId=second)
    assert anna("kms", "Decrypt", CiphertextBlob=moved["CiphertextBlob"], KeyId=second)["Plaintext"] == b"text"


def test_a_data_key_comes_with_its_ciphertext(accounts: Accounts) -> None:
    anna, key = accounts.anna, new_key(accounts.anna)
    requests: list[tuple[dict[str, Any], int]] = [
        ({"KeySpec": "AES_256"}, 32),
        ({"KeySpec": "AES_128"}, 16),
        ({"NumberOfBytes": 64}, 64),
    ]
    for request, size in requests:
        made = anna("kms", "GenerateDataKey", KeyId=key, **request)
        assert len(made["Plaintext"]) == size
        assert anna("kms", "Decrypt", CiphertextBlob=made["CiphertextBlob"])["Plaintext"] == made["Plaintext"]
    hidden = anna("kms", "GenerateDataKeyWithoutPlaintext", KeyId=key, KeySpec="AES_256")
    assert "Plaintext" not in hidden
    assert refused(anna, "GenerateDataKey", KeyId=key).code == "ValidationException"
    assert len(anna("kms", "GenerateRandom", NumberOfBytes=24)["Plaintext"]) == 24

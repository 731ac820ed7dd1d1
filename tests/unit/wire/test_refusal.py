import pytest

from trainyard.wire.refusal import Family, Reason, RequestRefused


@pytest.mark.parametrize("family", list(Family))
@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_words_in_every_family(reason: Reason, family: Family) -> None:
    fault = RequestRefused(reason, "What is wrong.").fault(family)
    assert fault.code
    assert fault.message
    assert fault.status in (400, 403)


@pytest.mark.parametrize(
    ("reason", "s3", "json", "query"),
    [
        (Reason.UNSIGNED, "AccessDenied", "MissingAuthenticationTokenException", "MissingAuthenticationToken"),
        (Reason.UNKNOWN_KEY, "InvalidAccessKeyId", "UnrecognizedClientException", "InvalidClientTokenId"),
        (Reason.INVALID_TOKEN, "InvalidToken", "UnrecognizedClientException", "InvalidClientTokenId"),
        (Reason.EXPIRED_TOKEN, "ExpiredToken", "ExpiredTokenException", "ExpiredToken"),
        (Reason.SKEWED, "RequestTimeTooSkewed", "InvalidSignatureException", "SignatureDoesNotMatch"),
        (Reason.MISMATCH, "SignatureDoesNotMatch", "InvalidSignatureException", "SignatureDoesNotMatch"),
        (
            Reason.MALFORMED_HEADER,
            "AuthorizationHeaderMalformed",
            "IncompleteSignatureException",
            "IncompleteSignature",
        ),
    ],
)
def test_each_family_has_its_own_code(reason: Reason, s3: str, json: str, query: str) -> None:
    refused = RequestRefused(reason, "What is wrong.")
    codes = [refused.fault(family).code for family in (Family.S3, Family.JSON, Family.QUERY)]
    assert codes == [s3, json, query]


def test_only_s3_faults_have_the_members() -> None:
    refused = RequestRefused(Reason.MISMATCH, members={"StringToSign": "AWS4…"})
    assert refused.fault(Family.S3).members == {"StringToSign": "AWS4…"}
    assert refused.fault(Family.JSON).members == {}

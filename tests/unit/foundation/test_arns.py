from trainyard.foundation.arns import assumed_role_arn, policy_arn, role_arn, unique_id, user_arn

ACCOUNT = "123456789012"


def test_identities_have_arns_with_their_path() -> None:
    assert role_arn(ACCOUNT, "r") == "arn:aws:iam::123456789012:role/r"
    assert role_arn(ACCOUNT, "r", "/team/") == "arn:aws:iam::123456789012:role/team/r"
    assert user_arn(ACCOUNT, "u", "/administrators/") == "arn:aws:iam::123456789012:user/administrators/u"
    assert policy_arn(ACCOUNT, "p") == "arn:aws:iam::123456789012:policy/p"
    assert assumed_role_arn(ACCOUNT, "r", "s") == "arn:aws:sts::123456789012:assumed-role/r/s"


def test_an_id_is_always_the_same_for_the_same_seed() -> None:
    made = unique_id("AROA", "seed")
    assert made == unique_id("AROA", "seed") != unique_id("AROA", "other")
    assert made.startswith("AROA")
    assert (len(made), made.isalnum(), made.isupper()) == (21, True, True)

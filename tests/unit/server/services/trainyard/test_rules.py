from tests.unit.server.services.accounts import As
from trainyard.insight.rules.catalog import RULES


def test_the_built_in_rules_are_listed_with_both_defaults_of_their_parameters(anna: As) -> None:
    rules = {each["Name"]: each for each in anna("trainyard", "ListDebuggerRules")["Rules"]}
    assert list(rules) == sorted(RULES)
    assert rules["VanishingGradient"]["About"].startswith("Finds gradients")
    patience = next(each for each in rules["VanishingGradient"]["Parameters"] if each["Name"] == "patience")
    assert (patience["Default"], patience["Advised"]) == ("1", "20")
    assert patience["Help"]

from trainyard._sdk.advice_trials.verification import Verification
from trainyard.cli.profiling.advise import advice_shape
from trainyard.cli.profiling.profile import profile_shape
from trainyard.foundation.plain import to_plain
from trainyard.insight.profiling.verdict.contract import ProfileVerdict


def test_profile_and_advise_spell_a_verdict_in_the_same_way() -> None:
    verdict = ProfileVerdict("Nothing stands out.", notes=["Too short."])
    of_profile = profile_shape({"TrainingJobName": "a", "Verdict": to_plain(verdict)})["Verdict"]
    assert of_profile["Summary"] == "Nothing stands out."
    assert of_profile.items() <= advice_shape(verdict, Verification((), ())).items()

"""Sequences that are mostly padding."""

from collections.abc import Iterator

from trainyard.formats.tensors.contract import Probe, Step
from trainyard.formats.tensors.statistics.probes import VALUE_SHARE
from trainyard.foundation.errors import InvalidRequest
from trainyard.insight.rules.contract import DebuggerRule, Finding, Need, Parameter
from trainyard.insight.rules.readings import History, Numbers, Reader, Reading, Streaks, duration_text, worst


class NLPSequenceRatio(DebuggerRule):
    """Finds token sequences in which one token, such as the padding, has too large a share."""

    name = "NLPSequenceRatio"
    parameters = (
        Parameter(
            "tensor_regex",
            tuple,
            (".*embedding0_input_0",),
            "The input tokens of an embedding.",
            advised=(r"(?i)(?<!type_)(embed\w*|wte)_input_0$",),
        ),
        Parameter("token_values", tuple, ("0",), "The tokens that are counted, as numbers."),
        Parameter(
            "token_thresholds_percent", tuple, ("50",), "The percentage of each token that must not be exceeded."
        ),
        Parameter("patience", int, 1, "For how many consecutive steps it must be exceeded.", advised=20, at_least=1),
    )

    def __init__(
        self,
        *,
        tensor_regex: tuple[str, ...],
        token_values: tuple[str, ...],
        token_thresholds_percent: tuple[str, ...],
        patience: int,
    ) -> None:
        tokens = _numbers("token_values", token_values)
        limits = _numbers("token_thresholds_percent", token_thresholds_percent)
        if len(tokens) != len(limits):
            raise InvalidRequest(
                f"Rule NLPSequenceRatio has {len(tokens)} token_values and {len(limits)} token_thresholds_percent; "
                f"give one threshold for each token."
            )
        self._limits = {Probe(VALUE_SHARE, (token,)): limit for token, limit in zip(tokens, limits, strict=True)}
        self._regexes, self._patience = tensor_regex, patience
        self._reader = Reader(self.needs)
        self._histories = {probe: History() for probe in self._limits}
        self._streaks = {probe: Streaks() for probe in self._limits}

    @property
    def needs(self) -> Need:
        return Need(regexes=self._regexes, probes=tuple(self._limits))

    def check(self, step: Step) -> Iterator[Finding]:
        reading = self._reader.read(step)
        for probe, limit in self._limits.items():
            shares = 100 * reading.measure(probe)
            self._histories[probe].add(reading, shares)
            hits = self._streaks[probe].count(reading, shares > limit) >= self._patience
            for index in worst(hits, shares):
                yield self._finding(reading, index, probe=probe, shares=shares)

    def _finding(self, reading: Reading, index: int, *, probe: Probe, shares: Numbers) -> Finding:
        tensor, share, limit = reading.tensors[index], float(shares[index]), self._limits[probe]
        return Finding.at(
            reading.step,
            tensor,
            f"{share:.3g} % of the tokens in {tensor.name} are {probe.parameters[0]:g}, more than {limit:g} %"
            f"{duration_text(self._patience)}.",
            value=share,
            threshold=limit,
            evidence=(self._histories[probe].evidence(reading, index, label="share of the token in %"),),
        )


def _numbers(name: str, texts: tuple[str, ...]) -> list[float]:
    try:
        return [float(text) for text in texts]
    except ValueError:
        raise InvalidRequest(
            f'Parameter "{name}" of rule NLPSequenceRatio is "{",".join(texts)}"; it needs numbers with commas between.'
        ) from None

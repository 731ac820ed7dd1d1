"""The contract of `Engine`, as one suite that every engine must pass, and an engine for tests of the yard."""

from trainyard.testing.engines.contract import EngineContract
from trainyard.testing.engines.simulated import PlayedAgent, Role, SimulatedEngine, complete, fail, run, vanish

__all__ = ["EngineContract", "PlayedAgent", "Role", "SimulatedEngine", "complete", "fail", "run", "vanish"]

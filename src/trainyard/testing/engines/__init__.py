"""The contract of `Engine` as a test suite for every engine, and a simulated engine for tests of the yard."""

from trainyard.testing.engines.contract import EngineContract
from trainyard.testing.engines.simulated import AgentRole, SimulatedAgent, SimulatedEngine, complete, fail, run, vanish

__all__ = ["AgentRole", "EngineContract", "SimulatedAgent", "SimulatedEngine", "complete", "fail", "run", "vanish"]

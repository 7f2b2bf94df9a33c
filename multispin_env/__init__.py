"""Multi-SPIN Gym: reinforcement-learning environments of multi-access speculative inference.

Importing the package registers its environments with Gymnasium::

    import gymnasium as gym
    import multispin_env

    env = gym.make("multispin/DraftLength-v0", scenario="qwen2.5")
"""

from gymnasium.envs.registration import register, registry

from multispin_env._moved import keep_old_names
from multispin_env.scenario import Scenario, list_scenarios
from multispin_env.world.control import CONTROLS

__version__ = "0.1.0"
__all__ = ["Scenario", "list_scenarios", "register_environments"]


def register_environments() -> None:
    """Register all ids with Gymnasium; harmless when they are registered already."""
    for control in CONTROLS:
        if control.id not in registry:
            register(
                control.id,
                entry_point=f"multispin_env.envs.scalar:{control.name}Env",
                vector_entry_point=f"multispin_env.envs.vector:{control.name}VectorEnv",
            )


keep_old_names()
register_environments()

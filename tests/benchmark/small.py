"""A small suite, quickly played, and policies to play it with."""

import json

import numpy as np

import baselines
from multispin_env import benchmark

SUITE = """
name = "small"
dev_episodes = 10
[[tasks]]
name = "draft"
env = "multispin/DraftLength-v0"
scenario = "qwen2.5"
overrides = {num_devices = 4, "radio.uplink_power_dbm" = 10.0, "episode.horizon_s" = 3.0, %s}
[[tasks]]
name = "modes"
env = "multispin/ModeSelection-v0"
scenario = "qwen2.5"
overrides = {num_devices = 4, "episode.horizon_s" = 3.0, %s}
arguments = {draft_policy = 3}
[[tasks]]
name = "joint"
env = "multispin/Joint-v0"
scenario = "qwen2.5"
overrides = {num_devices = 4, "episode.horizon_s" = 3.0, %s}
[[tasks]]
name = "bandwidth"
env = "multispin/DraftBandwidth-v0"
scenario = "qwen3.5"
overrides = {num_devices = 3, "episode.horizon_s" = 4.0, %s}
""" % (("reference_goodput = 50.0, reference_draft_length = 4",) * 4)


def write_suite(folder):
    """The path of the suite's file."""
    path = folder / "small.toml"
    path.write_text(SUITE)
    return path


def named(name, **options):
    return lambda env: baselines.make(name, env, **options)


def write_references(suite, path):
    """The floor is `fixed` with one token, the reference `strongest`."""
    tasks = {}
    for task in suite.tasks:
        low = "all_uplink" if task.name == "modes" else "fixed"
        options = {} if task.name == "modes" else {"draft_length": 1}
        played = {
            "low": benchmark.evaluate(named(low, **options), task, expected=False),
            "reference": benchmark.evaluate(
                lambda env: baselines.portfolio("strongest", env), task, expected=False
            ),
        }
        entry = {
            kind: {"policy": kind, "goodput": found.goodputs.tolist()}
            for kind, found in played.items()
        }
        tasks[task.name] = {"full": entry, "feedback": entry}
    content = {"suite": suite.name, "suite_sha256": suite.sha256, "value": "", "tasks": tasks}
    path.write_text(json.dumps(content))


class Peeking:
    """Reads the run lengths of the round to come from the tape, and drafts just as many tokens."""

    def __init__(self, env):
        self.env = env
        self.round = -1

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        self.round = 0 if episode_start[0] else self.round + 1
        run = self.env.unwrapped.tape.run_length[self.round]
        return np.minimum(run, self.env.unwrapped.scenario.max_draft_length), state


class Remembering:
    """Counts rounds in the state that `predict` hands back, drafts as many tokens."""

    def __init__(self, env):
        self.devices = env.unwrapped.scenario.num_devices

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        lanes = len(episode_start)
        count = np.zeros(lanes, int) if state is None else state[0]
        count = np.where(episode_start, 0, count)
        action = np.repeat(count[:, None] % 5, self.devices, axis=1)
        batched = np.ndim(observation["snr_db"]) == 2
        return (action if batched else action[0]), (count + 1,)

"""Old names of modules forward to the new ones."""

import importlib
import json
import pickle
import subprocess
import sys

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec

import multispin_env
from multispin_env._moved import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_is_the_same_module(old):
    module = importlib.import_module(f"multispin_env.{old}")
    assert module is importlib.import_module(f"multispin_env.{MOVED[old]}")
    assert module.__name__ == module.__spec__.name == f"multispin_env.{MOVED[old]}"
    assert getattr(multispin_env, old) is module


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_is_found_first_in_a_fresh_process(old):
    code = f"import multispin_env.{old} as m; from multispin_env import {old}; print(m.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == f"multispin_env.{MOVED[old]}", done.stderr


def test_the_names_that_were_used_in_them():
    from multispin_env.core import Core, Observation  # noqa: F401
    from multispin_env.devices import DeviceLaw, Devices  # noqa: F401
    from multispin_env.env import DraftLengthEnv, MultiSpinEnv  # noqa: F401
    from multispin_env.regret import round_regret  # noqa: F401
    from multispin_env.rewards import REWARDS, terms  # noqa: F401
    from multispin_env.round import Round, play_round  # noqa: F401
    from multispin_env.spaces import (  # noqa: F401
        CONTROLS,
        DRAFT_BANDWIDTH,
        DRAFT_LENGTH,
        JOINT,
        MODE_SELECTION,
        Control,
        action_space,
        observation_space,
    )
    from multispin_env.tape import Fork, Tape, episode_seed, stream  # noqa: F401
    from multispin_env.vector_env import DraftLengthVectorEnv  # noqa: F401
    from multispin_env.wrappers import DeadlineAction, FlatObservation  # noqa: F401


def test_a_specification_with_an_old_entry_point_is_made():
    kwargs = {"overrides": {"num_devices": 2, "reference_goodput": 50.0}}
    stored = json.loads(gym.make("multispin/DraftLength-v0", **kwargs).spec.to_json())
    stored["entry_point"] = "multispin_env.env:DraftLengthEnv"
    stored["vector_entry_point"] = "multispin_env.vector_env:DraftLengthVectorEnv"
    spec = EnvSpec.from_json(json.dumps(stored))
    env = gym.make(spec)
    assert env.reset(seed=0)[0]["snr_db"].shape == (2,)
    assert type(env.unwrapped) is type(gym.make("multispin/DraftLength-v0", **kwargs).unwrapped)


def test_a_pickle_that_names_an_old_module_is_read():
    from multispin_env.world.control import JOINT

    old = pickle.dumps(JOINT, protocol=0).replace(
        b"multispin_env.world.control", b"multispin_env.spaces"
    )
    assert pickle.loads(old) == JOINT


def test_an_unknown_name_is_still_unknown():
    with pytest.raises(ModuleNotFoundError, match=r"multispin_env\.nowhere"):
        importlib.import_module("multispin_env.nowhere")

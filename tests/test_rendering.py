"""Pictures: what they show, and that they need no display."""

import os
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("pygame", reason="needs the extra [render]: pygame-ce")

from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from test_env import IDS, SMALL

from multispin_env.envs import rendering
from multispin_env.envs.scalar import DraftLengthEnv
from multispin_env.model.correction import uplink_latency


def shares_of_kinds(timeline):
    return {bar.kind for bar in timeline.bars}


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("render_mode", ["rgb_array", "ansi"])
def test_renders_every_id_without_a_display(env_id, render_mode):
    env = gym.make(env_id, overrides=SMALL, render_mode=render_mode)
    env.reset(seed=0)
    before = env.render()
    env.step(env.action_space.sample())
    after = env.render()
    if render_mode == "ansi":
        assert isinstance(after, str)
        assert len(after.splitlines()) == 6
        assert before != after
    else:
        assert after.shape == (500, 800, 3)
        assert after.dtype == np.uint8
        assert not np.array_equal(before, after)
    env.close()


def test_check_env_accepts_the_rendering():
    for render_mode in ("rgb_array", "ansi"):
        env = gym.make(IDS[0], overrides=SMALL, render_mode=render_mode)
        check_env(env.unwrapped, skip_render_check=False)


def test_frames_are_fresh_and_repeatable():
    env = gym.make(IDS[0], render_mode="rgb_array")
    env.reset(seed=0)
    env.step(np.full(20, 4))
    first, second = env.render(), env.render()
    assert np.array_equal(first, second)
    assert not np.shares_memory(first, second)


def test_rendering_changes_nothing_in_the_episode():
    plain, drawn = gym.make(IDS[0]), gym.make(IDS[0], render_mode="rgb_array")
    plain.reset(seed=0)
    drawn.reset(seed=0)
    for _ in range(20):
        drawn.render()
        a, b = plain.step(np.full(20, 4)), drawn.step(np.full(20, 4))
        assert np.array_equal(a[0]["snr_db"], b[0]["snr_db"])
        assert a[1] == b[1]


@pytest.mark.parametrize("scenario", ["qwen2.5", "llama2"])
def test_the_bars_tell_the_round(scenario):
    env = gym.make(IDS[0], scenario=scenario, render_mode="ansi").unwrapped
    env.reset(seed=3)
    action = np.arange(20) % 7
    info = env.step(action)[4]
    picture = env._timeline
    token_s = env.tape.devices.token_latency_s
    ends = np.zeros(20)
    for device in range(20):
        bars = [bar for bar in picture.bars if bar.device == device]
        drafts = [bar for bar in bars if bar.kind in ("accepted", "rejected", "unused")]
        drafted_s = sum(bar.end_s - bar.start_s for bar in drafts)
        assert drafted_s == pytest.approx(action[device] * token_s[device])
        accepted_s = sum(bar.end_s - bar.start_s for bar in drafts if bar.kind == "accepted")
        assert accepted_s == pytest.approx(info["accepted"][device] * token_s[device])
        sent = [bar for bar in bars if bar.kind in ("uplink", "downlink")]
        assert len(sent) == (info["mode"][device] >= 0)
        if sent:
            assert sent[0].kind == ("uplink", "downlink")[info["mode"][device]]
        ends[device] = max(bar.end_s for bar in bars)
    # The slowest device ends the round: the bars are recomputed from powers and bandwidths.
    assert ends.max() == pytest.approx(info["latency_s"], rel=1e-9)
    assert picture.duration_s == pytest.approx(info["latency_s"])
    assert np.array_equal(picture.dropped, action == 0)
    assert picture.emitted.sum() == info["emitted"]


def test_uplink_bars_have_the_length_of_the_transmission():
    env = gym.make(IDS[0], correction="uplink", render_mode="ansi").unwrapped
    env.reset(seed=0)
    info = env.step(np.full(20, 6))[4]
    scenario = env.scenario
    expected = uplink_latency(
        env.tape.channel_gain[0],
        scenario.uplink_power_w,
        scenario.payload.distribution_bits,
        scenario.radio.bandwidth_hz / info["rejected"].sum(),
        scenario.noise_server_w / scenario.radio.bandwidth_hz,
    )
    bars = [bar for bar in env._timeline.bars if bar.kind == "uplink"]
    assert len(bars) > 5
    for bar in bars:
        assert bar.end_s - bar.start_s == pytest.approx(expected[bar.device], rel=1e-9)


def test_every_kind_of_bar_has_a_colour_of_its_own_in_the_frame():
    env = gym.make(IDS[1], draft_policy=6, render_mode="rgb_array")
    env.reset(seed=0)
    env.step(np.arange(20) % 2)
    assert shares_of_kinds(env.unwrapped._timeline) == set(rendering.KINDS)
    colours = {tuple(c) for c in np.unique(env.render().reshape(-1, 3), axis=0).tolist()}
    wanted = {colour for _, colour, _ in rendering.KINDS.values()}
    assert len(wanted) == len(rendering.KINDS)
    assert wanted <= colours


@pytest.mark.parametrize("num_devices", [1, 60, 90])
@pytest.mark.parametrize("render_mode", ["rgb_array", "ansi"])
def test_any_number_of_devices_fits(num_devices, render_mode):
    overrides = {"num_devices": num_devices, "reference_goodput": 100.0}
    env = gym.make(IDS[0], overrides=overrides, render_mode=render_mode)
    env.reset(seed=0)
    env.step(np.full(num_devices, 3))
    assert len(env.render()) > 0


@pytest.mark.parametrize("scenario", ["qwen2.5", "llama2"])
def test_dead_channels_are_drawn_up_to_the_longest_round(scenario):
    overrides = {"channel.kind": "uniform", "channel.mean_gain": [0.0] + [1e-12] * 3}
    env = gym.make(IDS[0], scenario=scenario, overrides=SMALL | overrides, render_mode="rgb_array")
    env.reset(seed=0)
    env.step(np.full(4, 20))
    assert env.render().shape == (500, 800, 3)
    assert all(np.isfinite(bar.end_s) for bar in env.unwrapped._timeline.bars)


def test_errors():
    with pytest.raises(ValueError, match="render_mode = 'video'"):
        DraftLengthEnv(render_mode="video")
    env = gym.make(IDS[0], render_mode="ansi").unwrapped
    with pytest.raises(ResetNeeded):
        env.render()


HUMAN = """
import gymnasium as gym, numpy as np, pygame
env = gym.make("multispin_env:multispin/DraftLength-v0", render_mode="human")
env.reset(seed=0)
for _ in range(3):
    env.step(np.full(20, 4))
    assert env.render() is None
window = pygame.display.get_surface()
assert window.get_size() == (800, 500)
shown = pygame.surfarray.array3d(window).swapaxes(0, 1)
twin = gym.make("multispin/DraftLength-v0", render_mode="rgb_array")
twin.reset(seed=0)
for _ in range(3):
    twin.step(np.full(20, 4))
assert np.array_equal(shown, twin.render())
env.close()
assert not pygame.display.get_init()
print("shown")
"""


def test_human_mode_shows_the_same_picture_in_a_window():
    done = subprocess.run(
        [sys.executable, "-c", HUMAN],
        capture_output=True,
        text=True,
        env=os.environ | {"SDL_VIDEODRIVER": "dummy"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("shown\n")

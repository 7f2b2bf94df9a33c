"""The analytical policies: what they decide, and how well they do over episodes."""

import importlib

import gymnasium as gym
import numpy as np
import pytest
from test_env import IDS, SMALL

import baselines
from multispin_env import solvers
from multispin_env.envs.wrappers import FlatObservation, FlattenBandwidth
from multispin_env.solvers.problems import pose, pose_observed

CORRECTION = {"computation_only", "deadline", "greedy", "thorough", "uniform"}
RULED = {f"{n}_{rule}" for n in CORRECTION for rule in ("uplink", "downlink", "random")}
UPLOAD = {"exact", "heterogeneous", "homogeneous", "uniform_bandwidth"}


@pytest.fixture
def agents():
    """The package with the adapter to Stable-Baselines3."""
    pytest.importorskip("stable_baselines3", reason="needs the extra [train]: stable-baselines3")
    return importlib.import_module("agents")


def goodputs(env_id, name, episodes, options=None, **kwargs):
    """Goodput of the first episode of each lane, seeded 0, 1, ..."""
    envs = gym.make_vec(
        env_id, num_envs=episodes, autoreset_mode="SAME_STEP", reward="tokens", **kwargs
    )
    policy = baselines.make(name, envs, **(options or {}))
    observations, _ = envs.reset(seed=0)
    found = {}
    while len(found) < episodes:
        observations, _, _, truncations, infos = envs.step(policy.predict(observations)[0])
        for lane in np.flatnonzero(truncations):
            found.setdefault(int(lane), infos["final_info"]["episode_goodput"][lane])
    return np.array([found[lane] for lane in range(episodes)])


@pytest.mark.parametrize(
    ("env_id", "scenario", "expected"),
    [
        (IDS[0], "qwen2.5", CORRECTION | {"fixed", "random"}),
        (IDS[0], "llama2", UPLOAD | {"fixed", "random"}),
        (IDS[1], "qwen2.5", {"all_downlink", "all_uplink", "optimal_modes", "random"}),
        (IDS[2], "qwen2.5", CORRECTION | RULED | {"fixed", "random"}),
        (IDS[3], "qwen3.5", UPLOAD | {"fixed", "random"}),
    ],
)
def test_names_by_control_and_protocol(env_id, scenario, expected):
    env = gym.make(env_id, scenario=scenario, overrides=SMALL)
    assert set(baselines.names(env)) == expected
    for name in expected:
        policy = baselines.make(name, env)
        observation, _ = env.reset(seed=0)
        for _ in range(3):
            action, _ = policy.predict(observation)
            assert action in env.action_space
            observation, _, _, truncated, _ = env.step(action)
            if truncated:
                observation, _ = env.reset()


@pytest.mark.parametrize("name", sorted(CORRECTION))
def test_the_policy_plays_its_solver(name):
    env = gym.make(IDS[0], overrides=SMALL)
    observation, _ = env.reset(seed=1)
    tape = env.unwrapped.tape
    posed = pose(
        env.unwrapped.scenario,
        tape.devices.acceptance_rate,
        tape.devices.token_latency_s,
        tape.channel_gain[0],
    )
    action, _ = baselines.make(name, env).predict(observation)
    assert action.tolist() == getattr(solvers, name)(posed).draft_length.tolist()


@pytest.mark.parametrize("rule", ["uplink", "downlink", "random"])
@pytest.mark.parametrize("name", ["deadline", "greedy"])
def test_lengths_are_the_best_under_the_rule_of_the_environment(name, rule, agents):
    options = {"overrides": SMALL | {"radio.uplink_power_dbm": 10}, "correction": rule}
    env = gym.make(IDS[0], **options)
    observation, _ = env.reset(seed=4)
    posed = pose_observed(env.unwrapped.scenario, observation)
    expected = getattr(solvers, name)(posed, rule=rule).draft_length
    lanes = (gym.make_vec(IDS[0], 2, **options), agents.make_vec_env(IDS[0], 2, **options))
    for made in (env, *lanes):
        action, _ = baselines.make(name, made).predict(observation)
        assert action.tolist() == expected.tolist()


@pytest.mark.parametrize("rule", ["optimal", "uplink", "downlink", "random"])
def test_joint_policies_follow_one_rule_in_lengths_and_modes(rule):
    env = gym.make(IDS[2], overrides={"radio.uplink_power_dbm": 10})
    policy = baselines.make("deadline" if rule == "optimal" else f"deadline_{rule}", env)
    observation, _ = env.reset(seed=4)
    downlinks = []
    for _ in range(6):
        action, _ = policy.predict(observation)
        following = {**observation, "snr_db": observation["next_snr_db"]}
        drafted = solvers.deadline(pose_observed(env.unwrapped.scenario, following), rule=rule)
        assert action[:20].tolist() == drafted.draft_length.tolist()
        observation, _, _, _, info = env.step(action)
        downlinks.extend(info["mode"][info["mode"] >= 0])
    share = np.mean(downlinks)
    if rule in ("uplink", "downlink"):
        assert share == (rule == "downlink")
    else:
        assert 0.1 < share < 0.9


@pytest.mark.parametrize("env_id", [IDS[0], IDS[2]])
def test_batched_and_scalar_predictions_agree(env_id):
    envs = gym.make_vec(env_id, num_envs=3, overrides=SMALL)
    observations, _ = envs.reset(seed=0)
    policy = baselines.make("deadline", envs)
    batch, _ = policy.predict(observations)
    for lane in range(3):
        single, _ = policy.predict({key: value[lane] for key, value in observations.items()})
        assert np.array_equal(batch[lane], single)


def test_optimal_modes_reach_the_latency_of_the_optimal_rule():
    env = gym.make(IDS[1], draft_policy=6, overrides={"episode.rounds": 60})
    optimal = gym.make(IDS[0], overrides={"episode.rounds": 60})
    observation, _ = env.reset(seed=2)
    optimal.reset(seed=2)
    policy = baselines.make("optimal_modes", env)
    for _ in range(50):
        action, _ = policy.predict(observation)
        observation, _, _, _, info = env.step(action)
        best = optimal.step(np.full(20, 6))[4]
        assert info["latency_s"] == pytest.approx(best["latency_s"], rel=1e-5)


@pytest.mark.slow
def test_deadline_is_far_above_greedy_over_episodes():
    for power_dbm, gain in ((10, 1.25), (20, 1.07)):
        overrides = {"radio.uplink_power_dbm": power_dbm}
        ours = goodputs(IDS[0], "deadline", 64, overrides=overrides)
        theirs = goodputs(IDS[0], "greedy", 64, overrides=overrides)
        assert ours.mean() >= gain * theirs.mean()


@pytest.mark.slow
def test_schemes_of_paper_a_are_ordered_over_episodes():
    means = [
        goodputs(IDS[3], name, 8).mean()
        for name in ("exact", "uniform_bandwidth", "homogeneous", "fixed")
    ]
    assert np.all(np.diff(means) < 0)


@pytest.mark.parametrize("name", ["fixed", "exact", "random"])
def test_bandwidth_policies_play_through_the_flat_wrapper_and_sb3(name, agents):
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    overrides = SMALL | {"episode.horizon_s": 4.0}
    env = FlattenBandwidth(gym.make(IDS[3], overrides=overrides))
    mean, _ = evaluate_policy(baselines.make(name, env), Monitor(env), n_eval_episodes=2)
    assert np.isfinite(mean)
    training = agents.make_vec_env(IDS[3], 2, seed=0, overrides=overrides)
    mean, _ = evaluate_policy(baselines.make(name, training), training, n_eval_episodes=2)
    assert np.isfinite(mean)


@pytest.mark.parametrize(
    ("env_id", "name"),
    [(IDS[0], "deadline"), (IDS[1], "optimal_modes"), (IDS[2], "greedy"), (IDS[3], "exact")],
)
def test_hidden_rates_are_replaced_by_what_the_feedback_tells(env_id, name):
    """With rounds enough the posterior finds every device's task, and the decisions agree."""
    overrides = {"num_devices": 4, "episode.rounds": 200}
    overrides["tasks"] = {"easy": 0.9, "hard": 0.5}
    shown = gym.make(env_id, overrides=overrides)
    hidden = gym.make(env_id, overrides=overrides, observe_acceptance=False)
    policies = [baselines.make(name, env) for env in (shown, hidden)]
    seen, feedback = shown.reset(seed=3)[0], hidden.reset(seed=3)[0]
    agree = []
    for _ in range(150):
        action, guess = policies[0].predict(seen)[0], policies[1].predict(feedback)[0]
        first, second = (a["draft_length"] if isinstance(a, dict) else a for a in (action, guess))
        agree.append(np.array_equal(first, second))
        seen, feedback = shown.step(action)[0], hidden.step(action)[0]
    assert all(agree[100:])
    assert env_id == IDS[1] or not agree[0]


def test_fixed_lengths_in_joint_have_optimal_modes():
    env = gym.make(IDS[2], overrides=SMALL)
    policy = baselines.make("fixed", env, draft_length=3)
    observation, _ = env.reset(seed=0)
    action, _ = policy.predict(observation)
    assert action[:4].tolist() == [3] * 4
    modes = gym.make(IDS[1], overrides=SMALL)
    assert (
        action[4:].tolist()
        == baselines.make("optimal_modes", modes).predict(observation)[0].tolist()
    )


def test_errors():
    env = gym.make(IDS[0], overrides=SMALL)
    with pytest.raises(ValueError, match="name = 'oracle' is no policy"):
        baselines.make("oracle", env)
    with pytest.raises(ValueError, match=r"'exact' does not fit.*correction protocol is"):
        baselines.make("exact", env)
    flat = FlatObservation(env)
    with pytest.raises(ValueError, match="Dict observation"):
        baselines.make("fixed", flat).predict(flat.reset(seed=0)[0])
    lanes = gym.make_vec(
        IDS[0], num_envs=2, price=1.0, overrides=[{}, {"radio.uplink_power_dbm": 10}]
    )
    with pytest.raises(ValueError, match="different scenarios"):
        baselines.make("fixed", lanes)
    modes = baselines.Context.of(gym.make(IDS[1], overrides=SMALL))
    with pytest.raises(ValueError, match="rule = 'random': must be 'optimal', 'uplink' or"):
        baselines.ModeRule(modes, rule="random")


def test_policies_for_sb3_lanes_with_their_own_physics_are_told_apart(agents):
    lanes = agents.make_vec_env(
        IDS[0], 2, price=1.0, overrides=[{"radio.uplink_power_dbm": 10}, {}]
    )
    powers = [s.radio.uplink_power_dbm for s in lanes.get_attr("scenario")]
    assert powers == [10.0, 20.0]

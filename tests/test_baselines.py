"""Baselines: which fit, how they are made, and how they act."""

import dataclasses
import gc
import weakref

import gymnasium as gym
import numpy as np
import pytest

import baselines
import multispin_env  # noqa: F401 (registers the environments)
from baselines import registry
from multispin_env.envs.wrappers import FlattenBandwidth
from multispin_env.scenario import Scenario
from multispin_env.world.control import CONTROLS, DRAFT_LENGTH

TRAIN = "needs the extra [train]: stable-baselines3"
K = 4
SMALL = {"num_devices": K, "reference_goodput": 150.0, "reference_draft_length": 5}
KINDS = [
    ("DraftLength", "qwen2.5"),
    ("DraftLength", "llama2"),
    ("ModeSelection", "qwen2.5"),
    ("Joint", "deepseek-r1"),
    ("DraftBandwidth", "qwen3.5"),
]
kinds = pytest.mark.parametrize(("kind", "preset"), KINDS)
observing = pytest.mark.parametrize("observe_acceptance", [True, False])


def make_env(kind="DraftLength", preset="qwen2.5", overrides=None, **options):
    overrides = SMALL | {"episode.rounds": 10} | (overrides or {})
    return gym.make(f"multispin/{kind}-v0", scenario=preset, overrides=overrides, **options)


def observe(env, count):
    """Some observations of one episode."""
    observations = [env.reset(seed=1)[0]]
    env.action_space.seed(1)
    while len(observations) < count:
        observations.append(env.step(env.action_space.sample())[0])
    return observations


def stack(observations):
    return {key: np.stack([o[key] for o in observations]) for key in observations[0]}


def leaves(action):
    return action if isinstance(action, dict) else {"": action}


def assert_same_action(one, other):
    one, other = leaves(one), leaves(other)
    assert one.keys() == other.keys()
    for key in one:
        np.testing.assert_array_equal(one[key], other[key])


def all_policies():
    """(kind, preset, name) of every policy in every environment that it fits."""
    return [(*kind, name) for kind in KINDS for name in baselines.names(make_env(*kind))]


policies = pytest.mark.parametrize(("kind", "preset", "name"), all_policies())


# --------------------------------------------------------------------------------------------
# Names and making.


@pytest.mark.parametrize("preset", ["qwen2.5", "llama2"])
def test_names_for_draft_lengths_under_either_protocol(preset):
    assert {"fixed", "random"} <= set(baselines.names(make_env("DraftLength", preset)))


def test_names_for_draft_lengths_and_bandwidth():
    assert {"fixed", "random"} <= set(baselines.names(make_env("DraftBandwidth", "qwen3.5")))


@pytest.mark.parametrize("kind", ["ModeSelection", "Joint"])
def test_names_where_the_agent_picks_modes(kind):
    names = baselines.names(make_env(kind))
    assert "random" in names
    assert ("fixed" in names) == (kind == "Joint")


@kinds
def test_names_are_sorted_and_unique(kind, preset):
    names = baselines.names(make_env(kind, preset))
    assert names == sorted(set(names))


def test_names_of_a_scenario_are_those_of_draft_lengths():
    scenario = Scenario.load("qwen2.5", SMALL)
    assert baselines.names(scenario) == baselines.names(make_env())


@policies
def test_every_listed_policy_can_be_made(kind, preset, name):
    policy = baselines.make(name, make_env(kind, preset))
    assert isinstance(policy, baselines.Policy)


@pytest.mark.parametrize("name", ["fixd", "", "Fixed"])
def test_unknown_name_is_refused_with_those_that_fit(name):
    with pytest.raises(ValueError, match=f"name = '{name}'.*DraftLength-v0.*'fixed'.*'random'"):
        baselines.make(name, make_env())


@pytest.mark.parametrize("kind", ["ModeSelection", "Joint"])
def test_policy_that_does_not_fit_is_refused(kind):
    with pytest.raises(ValueError, match=f"name = 'exact'.*{kind}-v0.*'random'"):
        baselines.make("exact", make_env(kind))


@pytest.mark.parametrize("env", [None, "qwen2.5", 5, SMALL], ids=repr)
def test_env_of_a_wrong_type_is_refused(env):
    with pytest.raises(ValueError, match="env = "):
        baselines.make("random", env)
    with pytest.raises(ValueError, match="env = "):
        baselines.names(env)


def test_foreign_environment_is_refused():
    with pytest.raises(ValueError, match="env = "):
        baselines.make("random", gym.make("CartPole-v1"))


def test_wrapped_environments_are_taken():
    env = FlattenBandwidth(make_env("DraftBandwidth", "qwen3.5"))
    assert baselines.names(env) == baselines.names(env.unwrapped)
    assert baselines.make("fixed", env).scenario == env.unwrapped.scenario


@pytest.fixture
def own_registry(monkeypatch):
    """Registrations end with the test."""
    monkeypatch.setattr(registry, "_POLICIES", dict(registry._POLICIES))


class Idle(baselines.Policy):
    """Drafts nothing; fits uploads only."""

    @staticmethod
    def fits(context):
        return context.scenario.protocol == "upload"

    def act(self, observation):
        return self.draft_action(np.zeros(observation["snr_db"].shape, np.int64), observation)


@pytest.mark.usefixtures("own_registry")
def test_registered_policy_is_listed_where_it_fits():
    baselines.register("idle", Idle)
    assert "idle" in baselines.names(make_env("DraftLength", "llama2"))
    assert "idle" not in baselines.names(make_env("DraftLength", "qwen2.5"))
    env = make_env("DraftBandwidth", "qwen3.5")
    observation, _ = env.reset(seed=0)
    action, _ = baselines.make("idle", env).predict(observation)
    assert env.action_space.contains(action)
    assert action["draft_length"].tolist() == [0] * K


@pytest.mark.usefixtures("own_registry")
def test_name_can_be_registered_once():
    with pytest.raises(ValueError, match="name = 'fixed'"):
        baselines.register("fixed", Idle)
    assert baselines.make("fixed", make_env()).draft_length == 5


# --------------------------------------------------------------------------------------------
# Acting.


@policies
@observing
def test_actions_lie_in_the_action_space(kind, preset, name, observe_acceptance):
    env = make_env(kind, preset, observe_acceptance=observe_acceptance)
    if name not in baselines.names(env):  # a solver cannot do without the rates
        assert not observe_acceptance
        with pytest.raises(ValueError, match="without acceptance rates"):
            baselines.make(name, env)
        return
    policy = baselines.make(name, env)
    observation, _ = env.reset(seed=2)
    truncated, rounds = False, 0
    while not truncated:
        action, _ = policy.predict(observation)
        assert env.action_space.contains(action)
        observation, _, _, truncated, _ = env.step(action)
        rounds += 1
    assert rounds == 10


@policies
def test_batch_has_the_shape_of_stacked_actions(kind, preset, name):
    env = make_env(kind, preset)
    policy = baselines.make(name, env)
    observations = observe(env, 6)
    batched = leaves(policy.predict(stack(observations))[0])
    for observation in observations:
        single = leaves(policy.predict(observation)[0])
        assert single.keys() == batched.keys()
        for key, value in single.items():
            assert batched[key].shape == (6, *value.shape)
            assert batched[key].dtype == value.dtype


@policies
def test_batch_holds_actions_of_the_space(kind, preset, name):
    env = make_env(kind, preset)
    batched = leaves(baselines.make(name, env).predict(stack(observe(env, 6)))[0])
    for n in range(6):
        action = {key: value[n] for key, value in batched.items()}
        assert env.action_space.contains(action.get("", action))


@policies
def test_batch_of_one_is_still_a_batch(kind, preset, name):
    env = make_env(kind, preset)
    batched = leaves(baselines.make(name, env).predict(stack(observe(env, 1)))[0])
    assert all(len(value) == 1 for value in batched.values())


@pytest.mark.parametrize(
    ("kind", "preset"), [("DraftLength", "qwen2.5"), ("DraftBandwidth", "qwen3.5")]
)
def test_fixed_acts_alike_on_one_observation_and_on_many(kind, preset):
    env = make_env(kind, preset)
    policy = baselines.make("fixed", env, draft_length=3)
    observations = observe(env, 6)
    batched = leaves(policy.predict(stack(observations))[0])
    for n, observation in enumerate(observations):
        row = {key: value[n] for key, value in batched.items()}
        assert_same_action(policy.predict(observation)[0], row.get("", row))


@policies
def test_observations_are_left_alone(kind, preset, name):
    env = make_env(kind, preset)
    observation = observe(env, 1)[0]
    before = {key: value.copy() for key, value in observation.items()}
    baselines.make(name, env).predict(observation)
    for key, value in before.items():
        np.testing.assert_array_equal(observation[key], value)


@pytest.mark.parametrize("state", [None, (np.zeros(3),)], ids=["none", "some"])
def test_state_is_handed_back(state):
    env = make_env()
    policy = baselines.make("fixed", env)
    observations = observe(env, 2)
    for observation in (observations[0], stack(observations)):
        start = np.ones(2, bool)
        assert policy.predict(observation, state, start, deterministic=False)[1] is state


def test_fixed_drafts_the_given_length():
    env = make_env()
    action, _ = baselines.make("fixed", env, draft_length=7).predict(observe(env, 1)[0])
    assert action.tolist() == [7] * K


def test_fixed_drafts_the_reference_length_by_default():
    env = make_env()
    action, _ = baselines.make("fixed", env).predict(observe(env, 1)[0])
    assert action.tolist() == [5] * K


def test_fixed_splits_the_band_equally():
    env = make_env("DraftBandwidth", "qwen3.5")
    observation, _ = env.reset(seed=3)
    info = env.step(baselines.make("fixed", env).predict(observation)[0])[4]
    np.testing.assert_allclose(info["bandwidth_hz"], 10e6 / K, rtol=1e-6)
    assert info["drafted"].tolist() == [5] * K


@pytest.mark.parametrize("length", [0, 20])
def test_fixed_takes_all_lengths_of_the_environment(length):
    assert baselines.make("fixed", make_env(), draft_length=length).draft_length == length


@pytest.mark.parametrize(
    "length", [-1, 21, True, 2.5, -0.5, "4", "four", float("nan"), [4], np.full(K, 4)], ids=repr
)
def test_fixed_refuses_other_lengths(length):
    with pytest.raises(ValueError, match="draft_length = "):
        baselines.make("fixed", make_env(), draft_length=length)


def random_actions(env, seed, batches=False):
    policy = baselines.make("random", env, seed=seed)
    observations = observe(env, 5)
    if batches:
        return [policy.predict(stack(observations))[0] for _ in range(3)]
    return [policy.predict(observation)[0] for observation in observations]


@kinds
@pytest.mark.parametrize("batches", [False, True])
def test_random_repeats_with_the_same_seed(kind, preset, batches):
    env = make_env(kind, preset)
    one, other = (random_actions(env, 4, batches) for _ in range(2))
    for first, second in zip(one, other, strict=True):
        assert_same_action(first, second)


@kinds
@pytest.mark.parametrize("batches", [False, True])
def test_random_differs_with_another_seed_and_from_step_to_step(kind, preset, batches):
    env = make_env(kind, preset)

    def flatten(action):
        return tuple(np.concatenate([v.ravel() for v in leaves(action).values()]).tolist())

    drawn = {flatten(a) for seed in (4, 5) for a in random_actions(env, seed, batches)}
    assert len(drawn) >= 5


def test_random_differs_within_a_batch():
    env = make_env()
    batch, _ = baselines.make("random", env, seed=6).predict(stack(observe(env, 5)))
    assert len({tuple(row) for row in batch.tolist()}) == 5


def test_random_lengths_and_modes_are_uniform():
    env = make_env("Joint")
    policy = baselines.make("random", env, seed=7)
    batch = {key: np.repeat(v[None], 3000, axis=0) for key, v in observe(env, 1)[0].items()}
    action, _ = policy.predict(batch)
    lengths, modes = np.split(action, 2, axis=1)
    assert np.unique(lengths).tolist() == list(range(21))
    assert lengths.mean() == pytest.approx(10.0, abs=0.25)  # four sigma of 12,000 draws
    assert modes.mean() == pytest.approx(0.5, abs=0.02)


def test_random_does_not_touch_the_environment():
    env = make_env()
    env.reset(seed=8)
    before = env.unwrapped.np_random.bit_generator.state, env.action_space.np_random.random()
    env.action_space.seed(9)
    expected = env.action_space.sample()
    env.action_space.seed(9)
    baselines.make("random", env, seed=9)
    assert env.unwrapped.np_random.bit_generator.state == before[0]
    np.testing.assert_array_equal(env.action_space.sample(), expected)


def make_vector(kind, preset):
    overrides = SMALL | {"episode.rounds": 10}
    return gym.make_vec(f"multispin/{kind}-v0", num_envs=3, scenario=preset, overrides=overrides)


@kinds
def test_names_of_a_vector_environment(kind, preset):
    assert baselines.names(make_vector(kind, preset)) == baselines.names(make_env(kind, preset))


@policies
def test_policies_control_vector_environments(kind, preset, name):
    envs = make_vector(kind, preset)
    policy = baselines.make(name, envs)
    observation, _ = envs.reset(seed=14)
    for _ in range(12):  # past the end of the first episodes
        action, _ = policy.predict(observation)
        assert envs.action_space.contains(action)
        observation = envs.step(action)[0]


# --------------------------------------------------------------------------------------------
# What a policy knows.


def test_context_has_only_constants():
    assert [field.name for field in dataclasses.fields(baselines.Context)] == [
        "control",
        "scenario",
        "informed",
        "flat",
        "correction",
    ]


@kinds
def test_context_of_an_environment(kind, preset):
    env = make_env(kind, preset)
    context = baselines.Context.of(env)
    assert context.control in CONTROLS
    assert context.control.name == kind
    assert context.scenario == Scenario.load(preset, SMALL | {"episode.rounds": 10})
    assert context.informed
    assert not context.flat


def test_context_of_a_scenario_is_that_of_draft_lengths():
    scenario = Scenario.load("qwen2.5", SMALL)
    assert baselines.Context.of(scenario) == baselines.Context(DRAFT_LENGTH, scenario)


@policies
def test_policies_do_not_hold_their_environment(kind, preset, name):
    env = make_env(kind, preset)
    env.reset(seed=10)
    policy = baselines.make(name, env)
    core, inner = weakref.ref(env.unwrapped._core), weakref.ref(env.unwrapped)
    del env
    gc.collect()
    assert inner() is None
    assert core() is None
    assert policy.scenario.num_devices == K


def test_context_is_frozen():
    context = baselines.Context.of(make_env())
    with pytest.raises(dataclasses.FrozenInstanceError):
        context.env = None


# --------------------------------------------------------------------------------------------
# Stable-Baselines3 runs them.


def short_env():
    monitor = pytest.importorskip("stable_baselines3.common.monitor", reason=TRAIN)
    overrides = {"episode.rounds": None, "episode.horizon_s": 2.0}
    return monitor.Monitor(make_env("DraftLength", "qwen2.5", overrides))


@pytest.mark.parametrize("name", baselines.names(make_env()))
def test_evaluate_policy_runs_them(name):
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation", reason=TRAIN)
    env = short_env()
    env.reset(seed=11)
    policy = baselines.make(name, env)
    mean, _ = evaluation.evaluate_policy(policy, env, n_eval_episodes=2)
    returns = env.get_episode_rewards()
    assert len(returns) == 2
    assert min(returns) >= -300.0 - 1e-3  # nothing delivered in 2 s at 150 tokens/s
    assert mean == pytest.approx(np.mean(returns), rel=1e-4, abs=1e-3)


def test_evaluate_policy_agrees_with_a_plain_loop():
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation", reason=TRAIN)
    env = short_env()
    env.reset(seed=12)
    policy = baselines.make("fixed", env, draft_length=4)
    returns, lengths = evaluation.evaluate_policy(
        policy, env, n_eval_episodes=2, return_episode_rewards=True
    )

    plain = make_env(overrides={"episode.rounds": None, "episode.horizon_s": 2.0})
    plain.reset(seed=12)
    for total, rounds in zip(returns, lengths, strict=True):
        plain.reset()
        rewards, truncated = [], False
        while not truncated:
            _, reward, _, truncated, _ = plain.step(np.full(K, 4))
            rewards.append(reward)
        assert len(rewards) == rounds
        assert sum(rewards) == pytest.approx(total, rel=1e-4, abs=1e-2)  # float32 in between

"""Networks and their training: symmetry, structure, learning, weights."""

import json
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra [train]: stable-baselines3")

import torch
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from test_env import IDS

import agents
import baselines
from agents import features, gradient, imitation, networks, training
from agents.imitation import Domain
from agents.policy import NetworkPolicy, load_network, save
from baselines import Context
from multispin_env import Scenario, benchmark, solvers
from multispin_env.envs.wrappers import DeadlineAction, FlattenBandwidth
from multispin_env.solvers.problems import pose_observed

torch.set_num_threads(1)  # tests run side by side

NAMES = list(networks.NETWORKS)
SCENARIO = {"draft": "qwen2.5", "modes": "qwen2.5", "uploads": "qwen3.5"}
DOMAINS = {
    "draft": Domain(["qwen2.5"], {4: 1.0}, {"radio.uplink_power_dbm": (8.0, 22.0)}),
    "modes": Domain(["qwen2.5"], {4: 0.5, 6: 0.5}),
    "uploads": Domain(["llama2", "qwen3.5"], {4: 1.0}, {"radio.bandwidth_hz": (4e6, 2e7)}),
}


def state(name, size=6, num_devices=5, seed=0):
    """Observations of random rounds, and what a network reads of them."""
    scenario = Scenario.load(SCENARIO[name], {"num_devices": num_devices})
    observation = imitation.draw_observation(scenario, size, np.random.default_rng(seed))
    reader = features.Reader([scenario])
    read = reader.correcting if name == "modes" else reader.drafting
    return scenario, observation, read(observation)


def decisions(name, network, given):
    """Best decisions, and shares where there are any."""
    encoded = network.encode(given)
    best = network.head.best(encoded, given)
    share = None if network.share is None else network.share.shares(encoded, given, best)
    return best, share


@pytest.mark.parametrize("name", NAMES)
def test_devices_may_be_numbered_in_any_way(name):
    torch.manual_seed(0)
    network = networks.NETWORKS[name]()
    _, observation, given = state(name, num_devices=7)
    order = np.random.default_rng(1).permutation(7)
    scenario = Scenario.load(SCENARIO[name], {"num_devices": 7})
    reader = features.Reader([scenario])
    read = reader.correcting if name == "modes" else reader.drafting
    moved = read({key: rows[:, order] for key, rows in observation.items()})
    best, share = decisions(name, network, given)
    other, other_share = decisions(name, network, moved)
    assert torch.equal(best[:, order], other)
    device, cell = network.encode(given)
    moved_device, moved_cell = network.encode(moved)
    torch.testing.assert_close(device[:, order], moved_device, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(cell, moved_cell, atol=1e-4, rtol=1e-4)
    assert (device[:, 0] - device[:, 1]).abs().max() > 0.1
    if share is not None:
        torch.testing.assert_close(share[:, order], other_share, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("num_devices", [1, 2, 60])
def test_cells_of_any_size(name, num_devices):
    network = networks.NETWORKS[name]()
    _, _, given = state(name, size=3, num_devices=num_devices)
    best, _ = decisions(name, network, given)
    assert best.shape == (3, num_devices)
    top = 1 if name == "modes" else given.max_draft_length
    assert torch.all((best >= 0) & (best <= top))


@pytest.mark.parametrize("name", NAMES)
def test_sampled_decisions_have_the_stated_probabilities(name):
    """Frequencies of the decisions of one small cell against exp(log-probability)."""
    torch.manual_seed(0)
    network = networks.NETWORKS[name]()
    scenario = Scenario.load(SCENARIO[name], {"num_devices": 2, "max_draft_length": 2})
    observation = imitation.draw_observation(scenario, 1, np.random.default_rng(0))
    reader = features.Reader([scenario])
    given = reader.correcting(observation) if name == "modes" else reader.drafting(observation)
    encoded = network.encode(given)
    drawn, log_probability, entropy = network.head.sample(encoded, given, 4000)
    assert drawn.shape == (4000, 1, 2)
    assert entropy.shape == (1,)
    found = {}
    for decision, score in zip(drawn[:, 0].tolist(), log_probability[:, 0].exp().tolist()):
        found.setdefault(tuple(decision), []).append(score)
    if name == "draft":  # several (deadline, subset) pairs can mean the same lengths: sum them
        probability = torch.softmax(network.head.logits(encoded, given), -1)[0]
        exact = {}
        for index in range(3):
            chances = torch.sigmoid(network.head.subset_logits(encoded, torch.tensor([index])))[0]
            for drafts in ((0, 0), (0, 1), (1, 0), (1, 1)):
                chosen = torch.tensor([drafts])
                lengths = network.head.lengths(given, torch.tensor([index]), chosen)[0]
                p = probability[index] * torch.where(chosen[0] == 1, chances, 1 - chances).prod()
                key = tuple(lengths.tolist())
                exact[key] = exact.get(key, 0.0) + p.item()
        for key, p in exact.items():
            seen = len(found.get(key, [])) / 4000
            assert abs(seen - p) < 5 * np.sqrt(p * (1 - p) / 4000) + 1e-9
        assert sum(exact.values()) == pytest.approx(1.0)
        return
    for scores in found.values():
        p = scores[0]
        assert np.ptp(scores) < 1e-6
        assert abs(len(scores) / 4000 - p) < 5 * np.sqrt(p * (1 - p) / 4000)


def test_the_deadline_head_decides_by_a_deadline_and_a_subset():
    torch.manual_seed(0)
    network = networks.NETWORKS["draft"]()
    _, _, given = state("draft", size=40, num_devices=6)
    encoded = network.encode(given)
    drawn, _, _ = network.head.sample(encoded, given, 5)
    for lengths in (network.head.best(encoded, given), *drawn):
        for row, token_s in zip(lengths, given.token_s):
            if row.amax() == 0:
                continue
            deadlines = torch.arange(21) * token_s.max()
            most = torch.floor(deadlines[:, None] / token_s * (1 + 1e-6)).clamp_max(20)
            fits = [bool(((row == 0) | (row == m)).all()) for m in most]
            assert any(fits)


def test_shares_let_uploads_end_together_at_any_slack():
    """With the true slack the shares are Lemma 3's."""
    scenario, observation, given = state("uploads", size=4, num_devices=6)
    head = networks.ShareHead()
    for n in range(4):
        problem = pose_observed(scenario, {k: v[n] for k, v in observation.items()})
        decision = solvers.exact(problem)
        if not decision.draft_length.any():
            continue
        lengths = torch.from_numpy(decision.draft_length)[None]
        longest = float(np.max(decision.draft_length * problem.token_latency_s))
        slack = float(problem.allocate(decision.draft_length).latency_s) - longest
        row = given.rows(slice(n, n + 1))
        total = (lengths * row.token_upload_s).sum(-1)
        shares = head._shares(row, lengths, torch.log(slack / total))[0].numpy()
        expected = decision.bandwidth_hz / decision.bandwidth_hz.max()
        np.testing.assert_allclose(shares, expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_labels_are_the_teachers_and_do_not_depend_on_the_workers(name):
    found = []
    for workers in (1, 2):
        *_, (count, data) = imitation.label(name, DOMAINS[name], 64, seed=3, workers=workers)
        assert count == sum(len(part.given) for part in data)
        found.append(data)
    for one, two in zip(*found):
        assert torch.equal(one.decision, two.decision)
        assert torch.equal(one.given.device, two.given.device)
    scenario, observation, _ = state(name)
    decision, slack_s = imitation.teach(name, scenario, observation)
    for n in range(len(decision)):
        problem = pose_observed(scenario, {k: v[n] for k, v in observation.items()})
        if name == "draft":
            assert decision[n].tolist() == solvers.deadline(problem).draft_length.tolist()
        elif name == "modes":
            sent = problem.correct(observation["rejected"][n] == 1)
            assert decision[n].tolist() == sent.downlink.astype(int).tolist()
        else:
            best = solvers.exact(problem)
            assert decision[n].tolist() == best.draft_length.tolist()
            ready = problem.allocate(best.draft_length).latency_s
            assert slack_s[n] == ready - np.max(best.draft_length * problem.token_latency_s)


@pytest.mark.parametrize("name", NAMES)
def test_imitation_learns_and_goes_on_from_a_checkpoint(name, tmp_path):
    *_, (_, data) = imitation.label(name, DOMAINS[name], 320, seed=0, workers=1)
    options = {"steps": 60, "batch_size": 64, "learning_rate": 3e-3, "seed": 0}
    weights = []
    for interrupted in (False, True):
        torch.manual_seed(0)
        network = networks.NETWORKS[name]()
        path = tmp_path / "c.pt" if interrupted else None
        steps = imitation.imitate(network, data, checkpoint=path, **options)
        if interrupted:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(imitation, "CHECKPOINT_STEPS", 20)
                for _ in range(45):
                    next(steps)
                torch.manual_seed(5)
                network = networks.NETWORKS[name]()
                rest = list(imitation.imitate(network, data, checkpoint=path, **options))
            assert [step for step, _ in rest] == list(range(41, 61))
        else:
            losses = [loss for _, loss in steps]
            assert np.mean(losses[-10:]) < 0.9 * np.mean(losses[:10])
        weights.append(torch.cat([p.flatten() for p in network.parameters()]))
    assert torch.equal(*weights)
    with pytest.raises(ValueError, match="is of another training"):
        next(imitation.imitate(network, data, checkpoint=path, **options | {"steps": 70}))


def test_the_policy_gradient_learns_without_a_teacher(tmp_path):
    """A small cell at low power: it pays to learn whom to leave out."""
    overrides = {"num_devices": 8, "radio.uplink_power_dbm": 10.0, "reference_goodput": 110.0}
    scenario = Scenario.load("qwen2.5", overrides)
    torch.manual_seed(0)
    network = networks.NETWORKS["draft"]()
    steps = list(gradient.train(network, [scenario], updates=200, groups=32))
    rewards = [progress.reward for progress in steps]
    assert np.mean(rewards[-40:]) > np.mean(rewards[:40]) + 3.0
    assert steps[-1].rounds == 200 * 32 * 16
    with pytest.raises(ValueError, match="decisions = 1"):
        next(gradient.train(network, [scenario], updates=1, decisions=1))
    weights = []
    for interrupted in (False, True):
        torch.manual_seed(1)
        network = networks.NETWORKS["draft"]()
        path = tmp_path / f"{interrupted}.pt"
        options = {"updates": 250, "groups": 2, "decisions": 2, "checkpoint": path}
        running = gradient.train(network, [scenario], **options)
        if interrupted:
            for _ in range(240):
                next(running)
            torch.manual_seed(9)
            network = networks.NETWORKS["draft"]()
            running = gradient.train(network, [scenario], **options)
        numbers = [progress.update for progress in running]
        assert numbers[-1] == 250
        assert (numbers[0] > 1) == interrupted
        weights.append(torch.cat([p.flatten() for p in network.parameters()]))
    assert torch.equal(*weights)


def test_lanes_have_their_own_scenarios():
    scenarios = [
        Scenario.load("qwen2.5", {"num_devices": 3}),
        Scenario.load("deepseek-r1", {"num_devices": 3, "radio.uplink_power_dbm": 10.0}),
    ]
    envs = gradient._lanes(scenarios, 2)
    assert [s.radio.uplink_power_dbm for s in envs.unwrapped.scenarios] == [20.0] * 2 + [10.0] * 2
    assert {s.episode.rounds for s in envs.unwrapped.scenarios} == {gradient.EPISODE_ROUNDS}
    for made, wanted in zip(envs.unwrapped.scenarios, np.repeat(scenarios, 2)):
        assert made.verification_s == wanted.verification_s
        assert made.tasks == wanted.tasks


# ---- PPO ----------------------------------------------------------------------------------------

PPO_TASKS = [
    (IDS[0], {}),
    (IDS[0], {"observe_acceptance": False}),
    (IDS[0], {"scenario": "llama2"}),
    (IDS[1], {"draft_policy": 3}),
    (IDS[2], {}),
    (IDS[3], {}),
]


@pytest.mark.parametrize("equivariant", [True, False])
@pytest.mark.parametrize(("env_id", "kwargs"), PPO_TASKS)
def test_ppo_trains_on_every_id(env_id, kwargs, equivariant, tmp_path):
    overrides = {"num_devices": 3, "reference_goodput": 50.0, "reference_draft_length": 3}
    env = agents.make_vec_env(env_id, 8, seed=0, overrides=overrides, **kwargs)
    model = agents.learner("PPO", env, equivariant=equivariant, seed=0)
    model.learn(256)
    observation = env.reset()
    action, _ = model.predict(observation, deterministic=True)
    model.save(tmp_path / "model.zip")
    again = type(model).load(tmp_path / "model.zip")
    assert np.array_equal(again.predict(observation, deterministic=True)[0], action)
    if equivariant:
        order = [2, 0, 1]
        moved = {key: rows[:, order] for key, rows in observation.items()}
        other, _ = model.predict(moved, deterministic=True)
        parts = np.split(action, action.shape[1] // 3, axis=1)
        expected = np.concatenate([part[:, order] for part in parts], axis=1)
        np.testing.assert_allclose(other, expected, atol=1e-4)


@pytest.mark.parametrize("env_id", IDS[1:3])
def test_equivariant_policies_see_both_rounds_and_the_rejections(env_id):
    overrides = {"num_devices": 3, "reference_goodput": 50.0, "reference_draft_length": 3}
    env = agents.make_vec_env(env_id, 4, seed=0, overrides=overrides)
    extractor = agents.learner("PPO", env, seed=0).policy.features_extractor
    shown = {key: torch.as_tensor(rows).float() for key, rows in env.reset().items()}
    before = extractor(shown)
    for key, change in (("snr_db", 5.0), ("next_snr_db", 5.0), ("rejected", None)):
        rows = 1.0 - shown[key] if change is None else shown[key] + change
        assert (extractor(shown | {key: rows}) - before).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("algorithm", "env_id", "equivariant", "deadline"),
    [
        ("PPO", IDS[0], True, True),
        ("PPO", IDS[0], False, True),
        ("A2C", IDS[0], False, False),
        ("A2C", IDS[3], True, False),
        ("SAC", IDS[3], False, False),
    ],
)
def test_weights_of_stable_baselines3_are_policies(
    algorithm, env_id, equivariant, deadline, tmp_path
):
    overrides = {"num_devices": 3, "reference_goodput": 50.0}
    env = agents.make_vec_env(env_id, 4, seed=0, deadline=deadline, overrides=overrides)
    options = {"learning_starts": 32, "batch_size": 32} if algorithm == "SAC" else {}
    model = agents.learner(algorithm, env, equivariant=equivariant, seed=0, **options)
    model.learn(128)
    card = {"algorithm": algorithm, "equivariant": equivariant, "deadline": deadline}
    save(model.policy, tmp_path / "a.safetensors", card | {"network": "sb3"})
    plain = gym.make(env_id, overrides=overrides)
    policy = agents.load(tmp_path / "a.safetensors", plain)
    wrapped = plain
    if deadline:
        wrapped = DeadlineAction(plain)
    elif env_id == IDS[3]:
        wrapped = FlattenBandwidth(plain)
    observation, _ = wrapped.reset(seed=1)
    for _ in range(10):
        theirs, _ = model.predict(observation, deterministic=True)
        mine, _ = policy.predict(observation)
        assert plain.action_space.contains(mine)
        observation, _, _, _, info = wrapped.step(theirs)
        drafted = mine if env_id == IDS[0] else mine["draft_length"]
        assert info["drafted"].tolist() == drafted.tolist()
    other = gym.make(env_id, overrides=overrides | {"num_devices": 4})
    if equivariant and env_id == IDS[0]:  # no spread of its own for every device
        observation, _ = other.reset(seed=0)
        assert other.action_space.contains(
            agents.load(tmp_path / "a.safetensors", other).predict(observation)[0]
        )
    else:
        with pytest.raises(ValueError, match="with 4 devices"):
            agents.load(tmp_path / "a.safetensors", other)


def test_deadlines_and_clipped_rewards_in_lanes():
    overrides = {"num_devices": 3, "radio.uplink_power_dbm": 0.0}
    env = agents.make_vec_env(IDS[0], 2, 5, deadline=True, clip_reward=30.0, overrides=overrides)
    single = [DeadlineAction(gym.make(IDS[0], overrides=overrides)) for _ in range(2)]
    env.reset()
    for n, one in enumerate(single):
        one.reset(seed=5 + n)
    generator = np.random.default_rng(0)
    clipped = 0
    for _ in range(60):
        actions = np.array([[generator.integers(21), *generator.integers(0, 2, 3)]] * 2)
        _, rewards, done, _ = env.step(actions)
        wanted = [one.step(actions[n])[1] for n, one in enumerate(single)]
        np.testing.assert_allclose(rewards, np.clip(wanted, -30.0, 30.0), rtol=1e-6)
        clipped += int(np.max(np.abs(wanted)) > 30.0)
        for n in np.flatnonzero(done):
            single[n].reset()
    assert 0 < clipped < 60


def test_learners_refuse_what_does_not_fit():
    env = agents.make_vec_env(IDS[0], 2, overrides={"num_devices": 3, "reference_goodput": 50.0})
    with pytest.raises(ValueError, match="algorithm = 'DQN': must be one of 'PPO', 'A2C', 'SAC'"):
        agents.learner("DQN", env)
    with pytest.raises(ValueError, match=r"SAC.*DraftBandwidth"):
        agents.learner("SAC", env, equivariant=False)
    mixed = agents.make_vec_env(
        IDS[0],
        2,
        scenario=["qwen2.5", "deepseek-r1"],
        overrides={"num_devices": 3, "reference_goodput": 50.0},
    )
    with pytest.raises(ValueError, match="lane 1 differs from lane 0"):
        agents.learner("PPO", mixed)
    agents.learner("PPO", mixed, equivariant=False)
    with pytest.raises(ValueError, match="DraftLength-v0"):
        agents.make_vec_env(IDS[2], 2, deadline=True)


def test_equivariant_ppo_learns_more_than_noise():
    overrides = {"num_devices": 4, "reference_goodput": 75.0}
    env = agents.make_vec_env(IDS[0], 64, seed=0, overrides=overrides)
    model = agents.learner("PPO", env, seed=0)
    before, _ = evaluate_policy(model, env, 64)
    model.learn(20_000)
    after, _ = evaluate_policy(model, env, 64)
    assert after > before + 50.0


# ---- shipped agents -----------------------------------------------------------------------------

KINDS = [
    (IDS[0], "qwen2.5"),
    (IDS[0], "llama2"),
    (IDS[1], "deepseek-r1"),
    (IDS[2], "qwen2.5"),
    (IDS[3], "qwen3.5"),
]


@pytest.mark.parametrize(("env_id", "scenario"), KINDS)
@pytest.mark.parametrize("observe_acceptance", [True, False])
def test_the_shipped_agent_plays_everything(env_id, scenario, observe_acceptance):
    overrides = {"num_devices": 5, "episode.horizon_s": 2.0}
    options = {"overrides": overrides, "scenario": scenario}
    env = gym.make(env_id, observe_acceptance=observe_acceptance, **options)
    policy = agents.load("distilled", env)
    observation, _ = env.reset(seed=0)
    for _ in range(4):
        action, _ = policy.predict(observation)
        assert action in env.action_space
        observation, _, _, truncated, _ = env.step(action)
        if truncated:
            observation, _ = env.reset()
    lanes = gym.make_vec(env_id, 3, observe_acceptance=observe_acceptance, **options)
    observations, _ = lanes.reset(seed=0)
    together, _ = policy.predict(observations)
    for n in range(3):
        alone, _ = policy.predict({key: rows[n] for key, rows in observations.items()})
        for key in together if isinstance(together, dict) else (slice(None),):
            np.testing.assert_allclose(together[key][n], alone[key], atol=1e-5)


def test_cards_tell_how_weights_were_made():
    for name in agents.list_agents():
        for path in sorted((agents.policy.WEIGHTS / name).glob("*.safetensors")):
            assert path.stat().st_size < 1_000_000
            card = json.loads(path.with_suffix(".json").read_text())
            assert card["network"] == path.stem
            assert card["command"].startswith("python scripts/train.py ")
            preset = training.Preset.load(card["preset"])
            assert set(card["dev"]) == set(preset.tasks)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", sorted(agents.policy.WEIGHTS.glob("*/*.safetensors")), ids=lambda p: p.parent.name
)
def test_dev_scores_of_the_cards_are_reproduced(path):
    card = json.loads(path.with_suffix(".json").read_text())
    preset = training.Preset.load(card["preset"])
    network = load_network(preset.network, path)
    task = preset.tasks[0]
    suite = benchmark.load("core-2026")
    found = benchmark.evaluate(
        training.factory_of(preset, network), suite.task(task), lanes=64, expected=False
    )
    stated = card["dev"][task]
    assert found.goodput == pytest.approx(stated["goodput"], rel=2e-3)


@pytest.mark.slow
def test_the_shipped_agent_is_where_it_should_be():
    """At least 0.98 of `deadline` where it was trained, and far above `greedy` at 10 dBm."""
    suite = benchmark.load("core-2026")
    references = benchmark.load_references(suite)
    task = suite.task("draft-qwen2.5-10dbm-r4")
    found = benchmark.evaluate(
        lambda env: agents.load("distilled", env), task, lanes=64, expected=False
    ).goodputs
    reference = references[task.name].reference
    assert found.mean() >= 0.98 * reference.mean()
    greedy = benchmark.evaluate(
        lambda env: baselines.make("greedy", env), task, lanes=64, expected=False
    ).goodputs
    assert benchmark.statistics.paired_difference(found, greedy).interval[0] > 0


def test_evaluate_policy_and_our_harness_agree():
    task = benchmark.load("quick").task("draft-qwen2.5-20dbm-r4")
    found = benchmark.evaluate(lambda env: agents.load("distilled", env), task, 2, seed=7)
    goodputs = []
    for seed in (7, 8):
        env = task.make(reward="tokens")
        first = Monitor(env)
        first.reset(seed=seed)

        class Seeded(gym.Wrapper):
            def reset(self, **_):
                return self.env.reset(seed=seed)  # noqa: B023

        rewards, _ = evaluate_policy(
            agents.load("distilled", env), Monitor(Seeded(env)), 1, return_episode_rewards=True
        )
        goodputs.append(rewards[0] / task.scenario.episode.horizon_s)
    np.testing.assert_allclose(goodputs, found.goodputs, rtol=1e-12)


def test_errors(tmp_path):
    env = gym.make(IDS[0], overrides={"num_devices": 3})
    with pytest.raises(ValueError, match="name = 'nobody': must be one of 'distilled'"):
        agents.load("nobody", env)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"has no draft\.safetensors"):
        agents.load(str(tmp_path / "empty"), env)
    save(networks.NETWORKS["modes"](), tmp_path / "wrong" / "draft.safetensors", {})
    with pytest.raises(ValueError, match="does not hold weights of the network 'draft'"):
        agents.load(str(tmp_path / "wrong"), env)
    with pytest.raises(ValueError, match="name = 'x': must be one of 'draft'"):
        load_network("x", tmp_path / "wrong" / "draft.safetensors")
    with pytest.raises(ValueError, match="is no file"):
        load_network("draft", tmp_path / "missing")
    with pytest.raises(ValueError, match="needs 'draft'"):
        NetworkPolicy(Context.of(env), {})
    long = gym.make(IDS[0], overrides={"num_devices": 3, "max_draft_length": 64})
    with pytest.raises(ValueError, match="max_draft_length = 64"):
        NetworkPolicy(Context.of(long), {"draft": networks.NETWORKS["draft"]()})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("network = 'x'\nagent = 'a'\ntasks = []\n[domain]\nscenarios = []\nnum_devices = {}",
         "network = 'x'"),
        ("network = 'draft'\nagent = 'a'\ntasks = []\n[domain]\nscenarios = []\nnum_devices = {}",
         r"must have a table \[sb3\], or"),
        ("network = 'draft'\nagent = 'a'\ntasks = ['x']\n"
         "[sb3]\nalgorithm = 'PPO'\nequivariant = true\nrounds = 9", r"must have a table \[sb3\]"),
        ("agent = 'a'\ntasks = []\n"
         "[sb3]\nalgorithm = 'PPO'\nequivariant = true\nrounds = 9", "tasks is empty"),
        ("agent = 'a'\ntasks = ['x']\n"
         "[sb3]\nalgorithm = 'PPO'\nequivariant = true\nrounds = 9", "task = 'x': must be one of"),
        ("network = 'modes'\nagent = 'a'\ntasks = []\n[domain]\nscenarios = []\nnum_devices = {}\n"
         "[gradient]\nupdates = 3", "domain must have scenarios"),
        ("network = 'modes'\nagent = 'a'\ntasks = []\n[domain]\nscenarios = ['qwen2.5']\n"
         "num_devices = { 5 = 1.0 }\n[gradient]\nupdates = 3", "trains 'draft' only"),
        ("network = 'draft'", "malformed"),
        ("network = 'draft'\nagent = 'a'\ntasks = []\n[domain]\nscenarios = []\nnum_devices = {}\n"
         "[imitation]\nsteps = 3", "malformed"),
    ],
)  # fmt: skip
def test_malformed_presets(tmp_path, text, message):
    path = tmp_path / "preset.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        training.Preset.load(path)
    with pytest.raises(ValueError, match="preset = 'none': must be one of 'a2c'"):
        training.Preset.load("none")


def test_stable_baselines3_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "SB3_ROUNDS", 128)
    task = "draft-qwen2.5-20dbm-r4-k5"
    stage = training.SB3("PPO", True, rounds=384, lanes=8, deadline=True)
    preset = training.Preset("tiny", "tiny", (task,), sb3=stage)
    update, _ = next(training.train(preset, 0, checkpoints=tmp_path, scores=False))
    assert update.step == 128
    rest = list(training.train(preset, 0, checkpoints=tmp_path, scores=False))
    assert [update.step for update, _ in rest] == [256, 384, 384]
    assert rest[-1][1].num_timesteps == 384
    with pytest.raises(ValueError, match="is of another training"):
        next(training.train(preset, 1, checkpoints=tmp_path))


def test_trainings_with_other_seeds_share_no_episodes():
    task = benchmark.load("core-2026").task("draft-qwen2.5-20dbm-r4-k5")
    stage = training.SB3("PPO", False, rounds=128, lanes=8)
    preset = training.Preset("tiny", "tiny", (task.name,), sb3=stage)
    seen = []
    for seed in range(2):
        for _, model in training.train(preset, seed, scores=False):
            tapes = model.get_env().get_attr("tape")
        seen.append({float(tape.channel_gain[0, 0]) for tape in tapes})
    assert len(seen[0]) == len(seen[1]) == 8
    assert not seen[0] & seen[1]


def test_a_folder_belongs_to_one_training(tmp_path):
    stage = training.Imitation(states=32, steps=3, batch_size=8, learning_rate=1e-3)
    task = "draft-qwen2.5-20dbm-r4-k5"
    preset = training.Preset("tiny", "tiny", (task,), "draft", DOMAINS["draft"], stage)
    list(training.train(preset, 0, checkpoints=tmp_path, workers=1, scores=False))
    other = replace(preset, domain=Domain(["deepseek-r1"], {4: 1.0}))
    with pytest.raises(ValueError, match="is of another training"):
        list(training.train(other, 0, checkpoints=tmp_path, workers=1, scores=False))
    with pytest.raises(ValueError, match="seed = -1"):
        next(training.train(preset, -1))

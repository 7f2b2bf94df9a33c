"""Entries: packed, verified, and rejected where they do not hold what they say."""

import hashlib
import random
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from small import write_references, write_suite

import baselines
from multispin_env import benchmark
from multispin_env.benchmark import (
    Entry,
    Plan,
    Verification,
    load_references,
    report,
    run,
    verification,
)
from multispin_env.benchmark.entry import hash_files
from multispin_env.benchmark.report import Line
from multispin_env.benchmark.statistics import adjusted_difference

POLICY = '''
"""Plays the papers' policies, or worse, as a file of weights says."""

from pathlib import Path

import baselines

WEIGHTS = Path(__file__).parent / "weights.txt"


def make(env, bias=0):
    return baselines.portfolio(WEIGHTS.read_text().strip(), env)
'''


STRONGEST = partial(baselines.portfolio, "strongest")


def verify(folder, companion=STRONGEST, **options):
    return benchmark.verify(folder, companion, **options)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A suite, references, a policy, its results, and a packed entry."""
    folder = tmp_path_factory.mktemp("work")
    suite = benchmark.load(write_suite(folder))
    write_references(suite, folder / "references.json")
    (folder / "policy.py").write_text(POLICY)
    (folder / "weights.txt").write_text("papers\n")
    plan = Plan(
        str(folder / "small.toml"),
        f"{folder / 'policy.py'}:make",
        {"bias": 1},
        decision_time_ms=500.0,
    )
    list(run(plan, folder / "results"))
    entry = benchmark.pack(
        {"run-0": folder / "results"},
        folder / "entry",
        name="Papers",
        authors=["A. Newcomer"],
        attach=[folder / "weights.txt"],
    )
    assert set(entry.files) == {
        "policy.py", "weights.txt", "run-0/episodes.csv", "run-0/actions.npz"
    }  # fmt: skip
    return folder


@pytest.fixture
def entry(work, tmp_path):
    """A copy of the entry to tamper with."""
    return shutil.copytree(work / "entry", tmp_path / "entry")


def rehash(folder, **changes):
    """Make entry.toml consistent with files that were changed: a forger would."""
    from dataclasses import asdict

    changed = asdict(Entry.load(folder)) | changes | {"files": hash_files(folder)}
    Entry(**changed).save(folder)


def test_an_honest_entry_is_verified(entry, work):
    assert Verification.load(entry) is None
    outcome = verify(entry, companion=None)
    assert (outcome.status, outcome.reason) == ("replayed", "")
    assert Line.of_entry(entry).status == "replayed"
    steps = []
    outcome = verify(entry, progress=steps.append)
    assert (outcome.status, outcome.reason) == ("verified", "")
    assert outcome.decision_ms > 0
    assert steps[:3] == ["rules", "replay of run-0", "rerun of run-0"]
    assert [step.split(":")[0] for step in steps[3:]] == ["draft", "modes", "joint", "bandwidth"]
    assert Line.of_entry(entry).status == "verified"
    # A verification is of one state of the entry.
    stored = (entry.parent / "verifications.json").read_text()
    change_cell(entry, "goodput", lambda text: repr(2 * float(text)))
    assert Line.of_entry(entry).status == "self-reported"
    shutil.rmtree(entry)
    shutil.copytree(work / "entry", entry)
    assert Line.of_entry(entry).status == "verified"
    rehash(entry, description="changed afterwards")
    assert Line.of_entry(entry).status == "self-reported"
    # What an entrant writes into the entry's folder is not listened to.
    (entry / "verifications.json").write_text(stored)
    rehash(entry)
    assert Line.of_entry(entry).status == "self-reported"


def change_cell(folder, column, change):
    path = folder / "run-0" / "episodes.csv"
    lines = path.read_text().splitlines()
    place = lines[0].split(",").index(column)
    cells = lines[3].split(",")
    cells[place] = change(cells[place])
    lines[3] = ",".join(cells)
    path.write_text("\n".join(lines) + "\n")


def change_arrays(folder, change):
    path = folder / "run-0" / "actions.npz"
    with np.load(path) as stored:
        arrays = dict(stored)
    change(arrays)
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


@pytest.mark.parametrize(
    "column", ["goodput", "charged_goodput", "expected_goodput", "tokens", "rounds", "seed"]
)
def test_forged_numbers_are_rejected(entry, column):
    def forge(text):
        value = float(text) * (1 + 1e-3)
        return repr(value) if "." in text else str(int(text) + 1)

    change_cell(entry, column, forge)
    changed = verify(entry, companion=None)
    assert changed.status == "rejected"
    assert "run-0/episodes.csv has changed" in changed.reason
    rehash(entry)
    forged = verify(entry, companion=None)
    assert forged.status == "rejected"
    told = "episodes.csv: row 2 is" if column == "seed" else f"{column} is stated as"
    assert told in forged.reason
    assert Line.of_entry(entry).status == "rejected"


def forge_actions(arrays):
    arrays["draft/action"] = arrays["draft/action"].copy()
    arrays["draft/action"][0] = (arrays["draft/action"][0] + 1) % 5


def forge_latency(arrays):
    arrays["draft/latency_s"] = arrays["draft/latency_s"] * (1 - 1e-6)


def forge_tokens(arrays):
    arrays["joint/emitted"] = arrays["joint/emitted"] + 1


def drop_rounds(arrays):
    arrays["modes/rounds"] = arrays["modes/rounds"][:-1]


def odd_kinds(arrays):
    arrays["modes/action"] = np.array(3)


def unused_array(arrays):
    arrays["draft/salt"] = np.arange(3)


def drop_task(arrays):
    for key in [key for key in arrays if key.startswith("bandwidth/")]:
        del arrays[key]


@pytest.mark.parametrize(
    ("forge", "reason"),
    [
        (forge_actions, "run-0, draft, episode 0"),
        (forge_latency, "latency_s of a round does not follow"),
        (forge_tokens, "run-0, joint, episode 0: emitted of a round"),
        (drop_rounds, "9 episodes of modes"),
        (drop_task, "lacks arrays of bandwidth"),
        (odd_kinds, "modes/action has the wrong shape or kind"),
        (unused_array, "has an array 'draft/salt'"),
    ],
)
def test_forged_arrays_are_rejected(entry, forge, reason):
    change_arrays(entry, forge)
    rehash(entry)
    outcome = verify(entry, companion=None)
    assert outcome.status == "rejected"
    assert reason in outcome.reason


def swap_rows(folder):
    path = folder / "run-0" / "episodes.csv"
    lines = path.read_text().splitlines()
    lines[1], lines[2] = lines[2], lines[1]
    path.write_text("\n".join(lines) + "\n")


def cut_rows(folder):
    path = folder / "run-0" / "episodes.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")


def empty_array(folder):
    (folder / "run-0" / "actions.npz").write_bytes(b"")


@pytest.mark.parametrize(
    ("forge", "reason"),
    [(swap_rows, "row 0 is"), (cut_rows, "row 39 is None"), (empty_array, "run-0")],
)
def test_forged_tables_are_rejected(entry, forge, reason):
    forge(entry)
    rehash(entry)
    outcome = verify(entry, companion=None)
    assert outcome.status == "rejected"
    assert reason in outcome.reason


def test_other_weights_are_rejected(entry):
    (entry / "weights.txt").write_text("strongest\n")
    assert "weights.txt has changed" in verify(entry).reason
    rehash(entry)
    assert verify(entry, companion=None).status == "replayed"  # the numbers do follow
    outcome = verify(entry)
    assert outcome.status == "rejected"
    assert "the rerun policy acts otherwise" in outcome.reason


def test_files_that_are_missing_or_too_many_are_rejected(entry):
    (entry / "notes.txt").write_text("hello")
    assert "notes.txt is not listed" in verify(entry).reason
    (entry / "notes.txt").unlink()
    (entry / "policy.py").unlink()
    assert "policy.py is missing" in verify(entry).reason


def test_a_policy_that_needs_other_files_is_rejected(entry):
    (entry / "weights.txt").unlink()
    rehash(entry)
    outcome = verify(entry)
    assert outcome.status == "rejected"
    assert "cannot be rerun: draft: making the policy: FileNotFoundError" in outcome.reason


CHEATS = {
    # Looks for the environment that is played, in the memory of the process.
    "searching": """
import gc

import numpy as np

import baselines


class Policy:
    def __init__(self, env):
        self.env, self.honest = env, baselines.portfolio("papers", env)

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        action, _ = self.honest.predict(observation)
        state = 0 if episode_start[0] else state + 1
        cores = [o for o in gc.get_objects() if type(o).__name__ == "Core" and o is not
                 self.env.unwrapped._core and o.control == self.env.unwrapped.control]
        if isinstance(action, np.ndarray) and action.shape == (4,) and cores:
            if cores[-1].started(0) and not self.env.unwrapped.control.mode:
                action = np.minimum(cores[-1].tape_of(0).run_length[state], 20)
        return action, state


def make(env):
    return Policy(env)
""",
    # Plays the public seeds beforehand, and recognises an episode by its first observation.
    "memorising": """
import numpy as np

import baselines
from multispin_env import benchmark

SUITE = {suite!r}


class Policy:
    def __init__(self, env):
        self.honest, self.runs = baselines.portfolio("papers", env), None
        self.task = next(t for t in benchmark.load(SUITE).tasks
                         if t.scenario == env.unwrapped.scenario
                         and t.control == env.unwrapped.control)

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        action, _ = self.honest.predict(observation)
        if self.task.name != "draft":
            return action, state
        state = 0 if episode_start[0] else state + 1
        if state == 0:
            for seed in self.task.seeds():
                env = self.task.make()
                first, _ = env.reset(seed=seed)
                if np.array_equal(first["snr_db"], observation["snr_db"]):
                    while env.unwrapped.tape.channel_gain.shape[0] < 80:
                        if env.step(np.zeros(4, int))[3]:
                            break
                    self.runs = env.unwrapped.tape.run_length
        if self.runs is not None and state < len(self.runs):
            action = np.minimum(self.runs[state], 20)
        return action, state


def make(env):
    return Policy(env)
""",
}


@pytest.mark.parametrize(
    ("cheat", "reason"),
    [("searching", "acts otherwise"), ("memorising", "played better than fresh ones")],
)
def test_policies_that_know_the_future_are_rejected(work, tmp_path, cheat, reason, monkeypatch):
    # The same fresh episodes in every run of the test.
    monkeypatch.setattr(verification.secrets, "randbelow", random.Random(0).randrange)
    path = tmp_path / f"{cheat}.py"
    path.write_text(CHEATS[cheat].replace("{suite!r}", repr(str(work / "small.toml"))))
    plan = Plan(str(work / "small.toml"), f"{path}:make", decision_time_ms=1000.0)
    list(run(plan, tmp_path / "results"))
    benchmark.pack({"run-0": tmp_path / "results"}, tmp_path / "entry", name="E", authors=["Eve"])
    assert verify(tmp_path / "entry", companion=None).status == "replayed"
    outcome = verify(tmp_path / "entry")
    assert outcome.status == "rejected"
    assert reason in outcome.reason


@pytest.mark.parametrize("gain", [0.0, 0.03])
def test_known_episodes_are_told_from_lucky_ones(gain):
    """Stated episodes that are a sixth richer for everybody; a policy that gains 3 % by knowing."""
    generator = np.random.default_rng(0)
    luck = np.append(generator.normal(120.0, 10.0, 64), generator.normal(100.0, 10.0, 32))
    played = luck * generator.normal(1.0, 0.01, 96)
    played[:64] *= 1.0 + gain

    def doubt(goodputs):
        difference = adjusted_difference(goodputs[:64], goodputs[64:], luck[:64], luck[64:])
        return verification._known_beforehand(difference, goodputs.mean())

    assert (doubt(played) < verification.FRESH_LEVEL) == (gain > 0)
    assert doubt(luck) == 0.5  # the companion itself


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import os\ndef make(env, bias):\n    os._exit(0)\n", "the policy's process failed"),
        ("def make(env, bias):\n    return 3\n", "which has no predict"),
        ("import sibling\nmake = sibling.make\n", "No module named 'sibling'"),
        ("from pathlib import Path\nimport json\n"
         "def make(env, bias):\n    raise OSError(str(sorted(p.name for p in "
         "Path(__file__).parent.iterdir())))\n", r"['policy.py', 'weights.txt']"),
        ("print('between the messages')\n" + POLICY, ""),
    ],
)  # fmt: skip
def test_what_a_rerun_runs(entry, text, reason):
    """A new policy in an old entry: it sees its own files, but not its results."""
    (entry / "policy.py").write_text(text)
    rehash(entry)
    outcome = verify(entry)
    assert outcome.status == ("rejected" if reason else "verified")
    assert reason in outcome.reason


def test_a_file_of_the_entry_hides_no_module(entry):
    """What would run before the policy is asked for: nothing of the entry."""
    for name in ("numpy.py", "sitecustomize.py", "random.py"):
        (entry / name).write_text("import os\nos._exit(0)\n")
    rehash(entry)
    assert verify(entry).status == "verified"


def test_links_are_rejected(entry, work):
    (entry / "weights.txt").unlink()
    (entry / "weights.txt").symlink_to(work / "weights.txt")
    assert "weights.txt is a link" in verify(entry).reason


def test_runs_of_learners_must_differ(work, tmp_path):
    plan = Plan(str(work / "small.toml"), "baselines:portfolio", {"name": "papers"},
                decision_time_ms=9.0)  # fmt: skip
    list(run(plan, tmp_path / "results"))
    (tmp_path / "results" / "timings.csv").write_text("task,episode,decision_ms\ndraft,0,1.0\n")
    benchmark.pack(
        {f"run-{n}": tmp_path / "results" for n in range(5)},
        tmp_path / "entry",
        name="Five",
        authors=["A"],
        division="learned-closed",
        training_rounds=1000,
    )
    assert "two have the same actions" in verify(tmp_path / "entry", companion=None).reason


SLOW = (
    POLICY
    + """

class Slow:
    def __init__(self, policy):
        self.policy = policy

    def predict(self, *arguments, **options):
        time.sleep(0.005)
        return self.policy.predict(*arguments, **options)
"""
)


def test_a_declared_time_must_hold(work, tmp_path, entry):
    plan = Plan(str(work / "small.toml"), "baselines:portfolio", {"name": "papers"})
    list(run(plan, tmp_path / "results"))
    with pytest.raises(ValueError, match=r"decision_time_ms = 0\.0: a decision took"):
        benchmark.pack({"a": tmp_path / "results"}, tmp_path / "new", name="A", authors=["B"])
    assert not (tmp_path / "new").exists()
    text = SLOW.replace("return baselines.portfolio", "return Slow(baselines.portfolio", 1)
    text = text.replace("strip(), env)", "strip(), env))", 1)
    (entry / "policy.py").write_text("import time\n" + text)
    rehash(entry)
    outcome = verify(entry)  # 500 ms are declared
    assert outcome.status == "verified"
    assert outcome.decision_ms > 5
    doubted = verification._check_time
    with pytest.raises(verification.RejectionError, match="declared are 500"):
        doubted(Entry.load(entry), 1600.0)


def test_pickles_need_trust(entry):
    for name in ("net.pt", "net.PKL", "w.csv.gz"):
        (entry / name).write_bytes(b"\x80")
        rehash(entry)
        assert f"{name} may run code" in verify(entry, companion=None).reason
        (entry / name).unlink()
    (entry / "net.pt").write_bytes(b"\x80")
    rehash(entry)
    trusted = verify(entry, companion=None, trust_pickles=True)
    assert trusted.status == "replayed"


def test_another_suite_is_rejected(entry):
    rehash(entry, suite_sha256=hashlib.sha256(b"other").hexdigest())
    assert "suite_sha256" in verify(entry).reason


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "name = ''"),
        ({"name": "x" * 61}, "name = 'xx"),
        ({"authors": ()}, "authors is empty"),
        ({"division": "best"}, "division = 'best'"),
        ({"track": "all"}, "track = 'all'"),
        ({"split": "train"}, "split = 'train'"),
        ({"training_rounds": -1}, "training_rounds = -1"),
        ({"runs": {}}, "runs is empty"),
        ({"runs": {"../other": {}}}, "runs: name '../other'"),
        ({"runs": {"__pycache__": {}}}, "runs: name '__pycache__'"),
        ({"policy": "/tmp/policy.py:make"}, "must lie in the entry's folder"),
        ({"authors": "Eve"}, "authors = 'Eve': must be of type tuple"),
        ({"authors": (3,)}, "authors lists 3"),
        ({"decision_time_ms": "0"}, "decision_time_ms = '0': must be of type int or float"),
        ({"training_rounds": True}, "training_rounds = True"),
        ({"name": "a|b"}, r"no '\|'"),
        ({"division": "analytical", "training_rounds": 5}, "must be 0 in the division analytical"),
        ({"division": "learned-closed", "decision_time_ms": 1.0}, "must be 5 training seeds"),
        ({"division": "learned-closed", "training_rounds": 2_000_000}, "at most 1000000"),
        ({"division": "learned-closed", "decision_time_ms": 11.0}, r"at most 10\.0"),
    ],
)
def test_rules(entry, changes, message):
    from dataclasses import asdict

    with pytest.raises(ValueError, match=message):
        Entry(**asdict(Entry.load(entry)) | changes)


def test_a_malformed_entry_is_rejected(entry):
    (entry / "entry.toml").write_text("name = 'x'")
    outcome = verify(entry)
    assert outcome.status == "rejected"
    assert "entry.toml" in outcome.reason


def test_packing_refuses_what_does_not_belong_together(work, tmp_path):
    arguments = {"name": "A", "authors": ["B"]}
    with pytest.raises(ValueError, match="exists already"):
        benchmark.pack({"run-0": work / "results"}, work / "entry", **arguments)
    part = Plan(str(work / "small.toml"), "baselines:portfolio", {"name": "papers"}, episodes=2)
    list(run(part, tmp_path / "part"))
    for results, message in (
        ({"a": tmp_path / "part"}, "covers only 2 episodes"),
        ({"a": work / "results", "b": tmp_path / "part"}, "run 'b' differs in policy"),
        ({"a": tmp_path / "none"}, "no finished results"),
    ):
        with pytest.raises(ValueError, match=message):
            benchmark.pack(results, tmp_path / "entry", **arguments)
    with pytest.raises(ValueError, match="names must differ"):
        benchmark.pack(
            {"run-0": work / "results"},
            tmp_path / "entry",
            attach=[work / "weights.txt", work / "weights.txt"],
            **arguments,
        )
    assert not (tmp_path / "entry").exists()


def test_an_entry_may_cover_a_part_of_the_suite(work, tmp_path):
    suite = str(work / "small.toml")
    plan = Plan(suite, "baselines:make", {"name": "deadline"}, tasks=("draft",))
    list(run(replace(plan, decision_time_ms=500.0), tmp_path / "results"))
    command = "python train.py --seed 3"
    packed = benchmark.pack(
        {"run-0": tmp_path / "results"},
        tmp_path / "entries" / "part",
        name="Part",
        authors=["A"],
        training=command,
    )
    assert packed.tasks == ("draft",)
    loaded = Entry.load(tmp_path / "entries" / "part")
    assert (loaded.tasks, loaded.training) == (("draft",), command)
    outcome = verify(tmp_path / "entries" / "part")
    assert outcome.status == "verified", outcome.reason
    references = load_references(benchmark.load(suite), path=work / "references.json")
    built = report.build([Line.of_entry(tmp_path / "entries" / "part")], references)
    assert built.standings == []  # no rank without all tasks
    assert [row.task for row in built.rows] == ["draft"]
    with pytest.raises(ValueError, match="task = 'darft': must be one of"):
        replace(loaded, tasks=("darft",)).chosen_tasks()


def test_several_runs_make_one_line(work, tmp_path):
    folder = work / "small.toml"
    for n in range(2):
        plan = Plan(str(folder), f"{work / 'policy.py'}:make", {"bias": n}, decision_time_ms=500.0)
        list(run(plan, tmp_path / f"results-{n}"))
    benchmark.pack(
        {f"run-{n}": tmp_path / f"results-{n}" for n in range(2)},
        tmp_path / "entry",
        name="Two",
        authors=["A"],
        attach=[work / "weights.txt"],
    )
    loaded = Entry.load(tmp_path / "entry")
    assert loaded.runs == {"run-0": {"bias": 0}, "run-1": {"bias": 1}}
    assert verify(tmp_path / "entry").status == "verified"
    references = load_references(benchmark.load(folder), path=work / "references.json")
    built = report.build([Line.of_entry(tmp_path / "entry")], references)
    assert built.standings[0].rank == 1
    assert len(built.rows) == 4


def test_tables_rank_and_compare(work, tmp_path):
    suite = benchmark.load(work / "small.toml")
    references = load_references(suite, path=work / "references.json")
    lines = []
    for name in ("strongest", "constant"):
        plan = Plan(str(work / "small.toml"), "baselines:portfolio", {"name": name})
        list(run(plan, tmp_path / name))
        lines.append(Line.of_results(tmp_path / name, name))
    lines.append(Line.of_entry(work / "entry"))
    built = report.build(lines, references)
    assert [s.line.name for s in built.standings][-1] == "constant"
    ranks = {s.line.name: s.rank for s in built.standings}
    assert ranks["constant"] > ranks["strongest"] == 1
    strongest = next(s for s in built.standings if s.line.name == "strongest")
    assert strongest.score == 1.0
    assert strongest.interval == (1.0, 1.0)
    assert strongest.improvement == 0.5
    rows = [row for row in built.rows if row.task == "draft"]
    assert [row.score.value for row in rows] == sorted((r.score.value for r in rows), reverse=True)
    text, table = report.markdown(built), report.table_csv(built)
    assert "| 1 | strongest | analytical | self-reported | 1.000 [1.000, 1.000] | 50 % |" in text
    assert text.count("**") == 8
    assert len(table.splitlines()) == 1 + 4 * 3
    same = report.compare(lines[0], lines[0])
    assert all(estimate.interval == (0.0, 0.0) and p == 1.0 for _, estimate, p in same)
    (draft, difference, p), *_ = report.compare(lines[0], lines[1])
    assert draft == "draft"
    assert difference.interval[0] > 0
    assert p < 0.05
    with pytest.raises(ValueError, match="must differ"):
        report.build([lines[0], lines[0]], references)


def test_references_belong_to_one_suite_and_split(work):
    suite = benchmark.load(work / "small.toml")
    with pytest.raises(ValueError, match="path = None"):
        load_references(suite)
    with pytest.raises(ValueError, match="path = None"):
        load_references(benchmark.load("quick"), value="secret")
    with pytest.raises(ValueError, match="are of suite 'small'"):
        load_references(benchmark.load("quick"), path=work / "references.json")
    with pytest.raises(ValueError, match="value ''"):
        load_references(suite, path=work / "references.json", value="secret")


def test_an_entry_stays_as_it_is_when_its_policy_is_played(work, tmp_path):
    entry = shutil.copytree(work / "entry", tmp_path / "entry")
    assert verify(entry, companion=None).status == "replayed"
    plan = Plan(str(work / "small.toml"), f"{entry / 'policy.py'}:make", {"bias": 1}, episodes=2)
    list(run(plan, tmp_path / "again"))
    assert not (entry / "__pycache__").exists()
    assert Line.of_entry(entry).status == "replayed"


def test_hostile_entries_are_rejected_not_crashed_on(work, tmp_path):
    for number, changes in enumerate(({"value": "x"}, {"split": "test"})):
        entry = shutil.copytree(work / "entry", tmp_path / f"entry-{number}")
        rehash(entry, **changes)
        outcome = verify(entry, companion=None)
        assert outcome.status == "rejected"
        assert "value = " in outcome.reason
    entry = shutil.copytree(work / "entry", tmp_path / "plain-array")
    with (entry / "run-0" / "actions.npz").open("wb") as file:
        np.save(file, np.arange(3))
    rehash(entry)
    assert verify(entry, companion=None).status == "rejected"


def test_training_seeds_must_differ_in_what_they_do(work, tmp_path):
    runs = {f"run-{n}": {"bias": 1} for n in range(5)}
    entry = shutil.copytree(work / "entry", tmp_path / "entry")
    for name in list(runs)[1:]:
        shutil.copytree(entry / "run-0", entry / name)
        with np.load(entry / name / "actions.npz") as stored:
            arrays = dict(stored)
        np.savez(entry / name / "actions.npz", **arrays)  # other bytes, the same actions
    rehash(entry, runs=runs, division="learned-closed", decision_time_ms=9.0)
    outcome = verify(entry, companion=None)
    assert outcome.status == "rejected"
    assert "two have the same actions" in outcome.reason

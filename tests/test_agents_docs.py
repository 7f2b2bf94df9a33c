"""docs/agents.md: its code runs, its table is that of the cards."""

import re
from pathlib import Path

import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra [train]: stable-baselines3")

import agents
from agents.cards import table

TEXT = (Path(__file__).parents[1] / "docs" / "agents.md").read_text()


def test_code_runs(capsys, tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 3
    monkeypatch.chdir(tmp_path)
    exec(blocks[0], {})
    assert "tokens/s" in capsys.readouterr().out
    weights = agents.policy.WEIGHTS / "distilled"
    for name in ("draft.safetensors", "draft.json"):
        (tmp_path / name).write_bytes((weights / name).read_bytes())
    names = {"__file__": str(tmp_path / "policy.py")}
    exec(blocks[1], names)
    import gymnasium as gym

    env = gym.make("multispin/DraftLength-v0", overrides={"num_devices": 3})
    observation, _ = env.reset(seed=0)
    assert names["make"](env).predict(observation)[0] in env.action_space
    exec(blocks[2], {})


def test_the_table_is_that_of_the_cards():
    shown = re.search(r"<!-- cards -->\n\n(.*?)\n\n<!-- end cards -->", TEXT, re.DOTALL)
    assert shown is not None
    assert shown[1] == table()

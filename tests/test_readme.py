"""The README's code runs as it stands, and its commands exist."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf8")


def test_python_blocks_run_verbatim(tmp_path, monkeypatch, capsys):
    pytest.importorskip("stable_baselines3", reason="needs the extra [train]: stable-baselines3")
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 4
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "readme.py"
    script.write_text("\n".join(blocks))
    runpy.run_path(str(script))
    assert "tokens/s" in capsys.readouterr().out


def test_make_targets_exist():
    targets = re.findall(r"^make (\w+)", README, re.MULTILINE)
    assert targets == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text("utf8")
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("path", re.findall(r"`(scripts/\w+\.py)`|\((docs/[^)]+)\)", README))
def test_files_it_names_exist(path):
    assert (ROOT / (path[0] or path[1])).is_file()

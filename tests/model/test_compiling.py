"""Machine code on disk: noticed edits, folders that cannot be written to, processes at once."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import multispin_env
from multispin_env.model.kernels import compiling

PACKAGE = Path(multispin_env.__file__).parent
VALUE = "from multispin_env.model.kernels.logarithms import natural_log; print(natural_log(2.0))"


@pytest.fixture
def copied(tmp_path):
    """A copy of the package that a test may edit, without its machine code."""
    folder = tmp_path / "multispin_env"
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def run(folder, code=VALUE, **environment):
    """What a process prints that imports the package of a folder."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder.parent,
        env={**os.environ, "PYTHONPATH": str(folder.parent), **environment},
    )
    return done.stdout.strip()


def kept(place):
    return sorted(path.name for path in Path(place).glob("kernels-*"))


def test_an_edit_in_another_file_is_noticed(copied):
    # Numba looks only at the file that it compiles: the callee is in `logarithms`.
    caller = copied / "model" / "kernels" / "caller.py"
    caller.write_text(
        "from multispin_env.model.kernels.compiling import lean\n"
        "from multispin_env.model.kernels.logarithms import natural_log\n\n\n"
        "@lean\ndef twice(x):\n    return 2.0 * natural_log(x)\n"
    )
    code = "from multispin_env.model.kernels.caller import twice; print(twice(1.0))"
    assert run(copied, code) == "0.0"
    assert run(copied, code) == "0.0"
    callee = copied / "model" / "kernels" / "logarithms.py"
    before, stamp = callee.read_text(), callee.stat()
    changed = before.replace("return exponent * LN2 + (", "return 3.0 + exponent * LN2 + (")
    assert changed != before
    callee.write_text(changed)
    os.utime(callee, (stamp.st_atime, stamp.st_mtime))
    assert run(copied, code) == "6.0"
    assert len(kept(copied / "model" / "kernels" / "__pycache__")) == 2


def test_the_folder_is_the_users_own_where_the_installation_is_read_only(copied, tmp_path):
    blocked = copied / "model" / "kernels" / "__pycache__"
    blocked.write_text("a file, so that no folder can be made, not even by root")
    home = tmp_path / "home"
    assert run(copied, XDG_CACHE_HOME=str(home)) == "0.6931471805599453"
    (folder,) = kept(home / "multispin-env")
    files = sorted((home / "multispin-env" / folder).rglob("*.nbc"))
    assert files
    stamps = [path.stat().st_mtime_ns for path in files]
    assert run(copied, XDG_CACHE_HOME=str(home)) == "0.6931471805599453"
    assert [path.stat().st_mtime_ns for path in files] == stamps  # loaded, not compiled again


def test_without_any_folder_it_is_compiled_in_memory(copied, tmp_path):
    (copied / "model" / "kernels" / "__pycache__").write_text("")
    (tmp_path / "home").write_text("")
    code = VALUE + "; from multispin_env.model.kernels.compiling import CACHE; print(CACHE)"
    assert run(copied, code, XDG_CACHE_HOME=str(tmp_path / "home")).endswith("None")


def test_numbas_own_variable_is_respected(copied, tmp_path):
    place = tmp_path / "elsewhere"
    run(copied, NUMBA_CACHE_DIR=str(place))
    assert len(kept(place)) == 1
    assert not kept(copied / "model" / "kernels" / "__pycache__")


def test_processes_that_start_at_once_agree(copied):
    environment = {**os.environ, "PYTHONPATH": str(copied.parent)}
    command = [sys.executable, "-B", "-c", VALUE]
    together = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(3)
    ]
    answers = [process.communicate(timeout=300)[0].strip() for process in together]
    assert [process.returncode for process in together] == [0, 0, 0]
    assert answers == ["0.6931471805599453"] * 3


def test_the_fingerprint_tells_names_from_contents(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    first = compiling.fingerprint(tmp_path)
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert compiling.fingerprint(tmp_path) != first
    (tmp_path / "b.py").rename(tmp_path / "a.py")
    (tmp_path / "notes.txt").write_text("not code")
    assert compiling.fingerprint(tmp_path) == first

"""The command-line program in the wheel."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from test_checkpoints import llama

import syncline as sl


def run(*arguments: object, status: int = 0) -> str:
    command = [sys.executable, "-m", "syncline", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def test_it_is_the_same_program() -> None:
    assert run("--version").split() == ["syncline", sl.__version__]
    assert json.loads(run("devices", "--json"))["devices"] == sl.devices()
    assert "tp" not in run("nonsense", status=2)


def test_it_starts_itself_for_processes(tmp_path: Path) -> None:
    llama(tmp_path / "hf")
    paths = [tmp_path / "hf", tmp_path / "out"]
    run("reshard", "run", *paths, "--to", "tp=2", "--transport", "shm", "--pes", 2)
    assert sl.verify(tmp_path / "hf", tmp_path / "out").same

"""The examples of the documents and of the package's own documentation."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

import syncline
from syncline import _learn, _program, _tasks

PAGES = Path(__file__).parent.parent


def test_the_first_refit_of_the_readme_runs(tmp_path: Path) -> None:
    (text,) = [
        part.split("```")[0]
        for part in (PAGES / "README.md").read_text().split("```python\n")[1:]
    ]
    # From `import` to the refit: the promise is 15 lines.
    assert len([line for line in text.splitlines() if line.strip()]) <= 15
    # Others may run the same on this machine.
    text = text.replace("shm:readme", f"shm:readme-{uuid.uuid4().hex}")
    (tmp_path / "first.py").write_text(text)
    command = [sys.executable, tmp_path / "first.py"]
    # Without it the lines of the two processes come mixed.
    buffered = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True, env=buffered
    )
    assert sorted(done.stdout.splitlines()) == ["0 [0. 0. 1. 1.] 24", "1 [0. 0. 1. 1.] 24"]


DOCS = PAGES.parent / "docs" / "PYTHON.md"


@pytest.mark.parametrize("number", range(5))
def test_examples_of_the_page_run(number: int, tmp_path: Path) -> None:
    examples = [part.split("```")[0] for part in DOCS.read_text().split("```python\n")[1:]]
    assert len(examples) == 5
    command = [sys.executable, "-c", examples[number]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", [syncline, _learn, _program, _tasks])
def test_examples_of_docstrings(module) -> None:
    found = doctest.testmod(module)
    assert found.attempted and not found.failed

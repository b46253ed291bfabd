"""The notebook of the documents: executed, and looked at as a reader would."""

from __future__ import annotations

import uuid
from pathlib import Path

import nbformat
from nbclient import NotebookClient

PAGE = Path(__file__).parent.parent.parent / "docs" / "python.ipynb"


def test_the_notebook_runs_and_shows_pages(tmp_path: Path) -> None:
    notebook = nbformat.read(PAGE, as_version=4)
    for cell in notebook.cells:
        # Others may run the same on this machine.
        cell.source = cell.source.replace("notebook-example", f"notebook-{uuid.uuid4().hex}")
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=120, resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = [output.data for output in outputs if "data" in output]
    pages = [data["text/html"] for data in shown if "text/html" in data]
    assert len(pages) == 2
    assert "from 3" in pages[0] and "<table>" in pages[0]
    assert "<iframe" in pages[1]
    texts = [data["text/plain"] for data in shown]
    assert any("gets it from rank 2" in text for text in texts)
    said = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "100%" in said

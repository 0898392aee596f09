"""The docs cannot drift: pages made from the code are compared with it, examples are run, and every
command, setting and public name is mentioned.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import lakebed
from lakebed.cli import reference
from lakebed.cli.main import run
from lakebed.model.tables.schema import BUCKET_COLUMN
from lakebed.model.tables.table import REJECTS, RESERVED_DATABASES, RESERVED_WORDS
from lakebed.operations.sql_functions import make_functions
from lakebed.query.embedded.functions import histograms, properties
from lakebed.query.embedded.functions import lake_functions as functions
from tests.parts import servers
from tests.serve.parts import Served, serving
from tests.test_operating import require_accepted

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_cli_reference_is_made_from_the_code() -> None:
    made = "\n".join(reference.lines()).rstrip() + "\n"
    assert (ROOT / "docs" / "cli.md").read_text() == made, "run: make docs"


def run_examples(page: str, folder: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(blocks)],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "200"},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "page", ["README.md", "docs/landing.md", "docs/decoding.md", "docs/operating.md"]
)
def test_python_examples_run(page: str, tmp_path: Path) -> None:
    run_examples(page, tmp_path)


def test_examples_of_queries_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_examples("docs/query.md", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEBED_LAKE", "shop")
    report = "SELECT time, msg FROM log_entries LIMIT 3"
    Path("report.sql").write_text(report)
    stdin = SimpleNamespace(buffer=io.BytesIO(report.encode()), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stdin)
    lines = re.findall(r"^    lakebed (query .*)$", (ROOT / "docs/query.md").read_text(), re.M)
    assert len(lines) > 10
    for line in lines:
        arguments = shlex.split(re.split(r" [|<] ", line)[0])
        fine = {0, 2, 4} if "--as-of" in arguments else {0}  # who knows what time it is here
        assert run(arguments) in fine, (line, capsys.readouterr().err)
    assert Path("report.csv").read_text().startswith('"time","msg"\n')


def test_examples_of_tables_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page is read from top to bottom: files are written, Python and commands are run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEBED_LAKE", "wearables")
    names: dict[str, object] = {}
    done = set[str]()
    parts = re.compile(
        r"```json (\S+)\n(.*?)```|```python\n(.*?)```|^    (lakebed .*?)$", re.S | re.M
    )
    for file, content, python, line in parts.findall((ROOT / "docs/tables.md").read_text()):
        if file:
            Path(file).write_text(content)
        elif python:
            exec(compile(python, "docs/tables.md", "exec"), names)
        else:
            done.add(line.split()[2])
            run_line(line, monkeypatch, capsys)
    verbs = re.findall(r"^## lakebed tables (\w+)$", (ROOT / "docs" / "cli.md").read_text(), re.M)
    assert done >= set(verbs)


def test_examples_of_connections_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of queries made a lake; it is served, and the page's address is that of the server."""
    page = (ROOT / "docs/serving.md").read_text()
    (made,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/query.md").read_text(), re.S)[:1]
    examples = re.findall(r"```python\n(.*?)```", page, re.S)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(made, "docs/query.md", "exec"), names)
    with names["lake"] as lake:
        monkeypatch.setenv("LAKEBED_KEY", lake.keys.create("me", ["admin"]).secret)
        with serving(lake) as served:
            for example in examples:
                exec(compile(at(served, example), "docs/serving.md", "exec"), {})
            (line,) = re.findall(r"^    lakebed (query .*)$", page, re.M)
            assert run(shlex.split(at(served, line))) == 0


def test_examples_of_clusters_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    postgres_url: str,
    s3_bucket: str,
) -> None:
    """On a real PostgreSQL and a real S3. What serves for ever, or needs a cluster, is parsed."""
    monkeypatch.chdir(tmp_path)
    lakebed.init("shop").close()
    page = (ROOT / "docs/cluster.md").read_text().replace("s3://telemetry", f"s3://{s3_bucket}")
    for name in ("lake", "moved"):
        url = servers.new_database(postgres_url, template="template0")
        page = page.replace(f"postgresql://lakebed@db/{name}", url)
    lines = re.findall(r"^    (lakebed .*)$", page, re.M)
    assert len(lines) > 10
    for line in lines:
        arguments = shlex.split(line)[1:]
        if arguments[0] == "serve" or {"--master", "--remote", "--engine"} & {*arguments}:
            require_accepted(arguments)
        else:
            run_line(line, monkeypatch, capsys)


def at(served: Served, text: str) -> str:
    """An example, for a server whose port is another."""
    assert "grpc://localhost:50051" in text
    return text.replace("grpc://localhost:50051", served.flight)


def run_line(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One command as a shell would run it; a comment may say how it ends."""
    command, _, comment = line.partition("  # exit code ")
    _, *arguments = shlex.split(command)
    source = target = None
    if "<" in arguments:
        *arguments, _, source = arguments
        stdin = io.BytesIO(Path(source).read_bytes())
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stdin, isatty=lambda: False))
    if ">" in arguments:
        *arguments, _, target = arguments
    capsys.readouterr()
    code = run(arguments)
    printed = capsys.readouterr()
    assert code == int(comment or 0), (line, printed.err)
    if target is not None:
        Path(target).write_text(printed.out)


def test_every_function_is_documented() -> None:
    page = (ROOT / "docs/query.md").read_text()
    names = {each.name for each in [*functions.TABLES, *make_functions(lambda *_: [])]}
    names |= {each.name for each in [*histograms.functions(), *properties.functions()]}
    assert names == {name for name in names if f"`{name}(" in page}


def test_every_command_named_in_the_docs_exists() -> None:
    known = set(re.findall(r"^## (lakebed[ \w]+)$", (ROOT / "docs" / "cli.md").read_text(), re.M))
    for page in PAGES:
        for line in re.findall(r"^    (lakebed .*)$", page.read_text(), re.M):
            words = line.split()
            assert " ".join(words[:2]) in known or " ".join(words[:3]) in known, line


def anchors_of(page: Path) -> set[str]:
    """What links can name on a page: its headings, as GitHub spells them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_every_name_that_is_taken_is_documented() -> None:
    page = (ROOT / "docs/tables.md").read_text()
    (told,) = (line for line in page.splitlines() if line.startswith("Names of columns"))
    for name in (*RESERVED_WORDS, *RESERVED_DATABASES, REJECTS, BUCKET_COLUMN):
        assert f"`{name}`" in told


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^):]+)\)", page.read_text()):
            path, _, anchor = target.partition("#")
            there = page.parent / path if path else page
            assert there.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors_of(there), f"{page.name}: {target}"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_readme_shows_every_folder() -> None:
    shown = (ROOT / "README.md").read_text()
    for folder in (ROOT / "src" / "lakebed").iterdir():
        if folder.is_dir() and (folder / "__init__.py").exists():
            assert f"{folder.name}/" in shown


def test_the_public_surface_is_what_is_declared() -> None:
    assert {*lakebed._HOMES} == {*lakebed.__all__}
    for name in lakebed.__all__:
        assert getattr(lakebed, name) is not None
    with pytest.raises(AttributeError):
        _ = lakebed.nothing


def test_importing_lakebed_is_cheap() -> None:
    heavy = "{'pyarrow', 'sqlalchemy', 'alembic', 'obstore', 'rich', 'typer'}"
    code = f"import sys, lakebed; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

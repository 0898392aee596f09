"""Where settings come from, which goes before which, and how wrong ones are named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import typer

from lakebed.cli.main import app
from lakebed.errors import BadInput
from lakebed.settings import (
    FILE_NAME,
    Kind,
    Settings,
    look_up,
    mask,
    read_settings,
    spell,
    unknown_variables,
    variable,
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and nothing of ours in the environment."""
    for name in os.environ:
        if name.startswith("LAKEBED_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_option_goes_before_the_environment_before_the_file_before_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path(FILE_NAME).write_text("tail_mib = 1\nserve_port = 1\nsweep_files = 1")
    monkeypatch.setenv("LAKEBED_SERVE_PORT", "2")
    monkeypatch.setenv("LAKEBED_SWEEP_FILES", "2")
    reading = look_up(sweep_files=3, lake=None)
    assert not reading.problems
    found = reading.settings
    assert (found.tail_cache_mib, found.tail_mib, found.serve_port, found.sweep_files) == (
        *(256, 1, 2, 3),
    )
    names = ["tail_cache_mib", "tail_mib", "serve_port", "sweep_files", "lake"]
    assert [str(reading.origins[name]) for name in names] == [
        *("default", "lakebed.toml", "LAKEBED_SERVE_PORT", "--sweep-files", "default"),
    ]
    assert reading.origins["tail_mib"].kind is Kind.FILE


def test_settings_that_are_made_directly_read_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(FILE_NAME).write_text("nonsense")
    monkeypatch.setenv("LAKEBED_TAIL_MIB", "2")
    assert Settings().tail_mib == 256


def test_a_file_can_be_anywhere_and_its_paths_are_relative_to_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "etc").mkdir()
    (folder / "etc" / "shop.toml").write_text(
        'lake = "shop"\nserve_certificate = "shop.pem"\nserve_private_key = "/keys/shop.key"'
    )
    Path(FILE_NAME).write_text("tail_mib = 1")
    monkeypatch.setenv("LAKEBED_CONFIG", str(folder / "etc" / "shop.toml"))
    found = read_settings()
    assert found.lake == str(folder / "etc" / "shop")
    assert found.serve_certificate == folder / "etc" / "shop.pem"
    assert found.serve_private_key == Path("/keys/shop.key")
    assert found.tail_mib == 256
    (folder / "etc" / "shop.toml").write_text('lake = "postgresql://db/lake"')
    assert read_settings().lake == "postgresql://db/lake"


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LAKEBED_CONFIG", "LAKEBED_QUERY_SECONDS", "LAKEBED_LAKE"):
        monkeypatch.setenv(name, "")
    assert read_settings() == Settings()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tail_mib = ", "lakebed.toml is not TOML: invalid value (at "),
        ("tail_mib = 1\ntail_mib = 2", "lakebed.toml is not TOML"),
        ("tail_mb = 1", "lakebed.toml has 'tail_mb', which is no setting; did you mean 'tail_mib'"),
        ("[serve]\nport = 1", "it has no tables, write serve_port = "),
        ('tail_mib = "512"', "tail_mib = '512' in lakebed.toml is wrong: input should be a valid"),
        ("tail_mib = 0", "tail_mib = 0 in lakebed.toml is wrong: input should be greater than"),
        ("tail_mib = 1.0", "tail_mib = 1.0 in lakebed.toml is wrong"),
        ("lease_seconds = true", "lease_seconds = true in lakebed.toml is wrong"),
        ("lease_seconds = inf", "lease_seconds = inf in lakebed.toml is wrong"),
        ("actor = 2026-11-16", "actor = 2026-11-16 in lakebed.toml is wrong"),
        ("actor = ['me']", "actor = ['me'] in lakebed.toml is wrong"),
        ("serve_port = 65536", "serve_port = 65536 in lakebed.toml is wrong"),
        ('serve_roles = "ingest,cook"', "is wrong: 'cook' is no role of a server"),
        ('log = "loud"', "log = 'loud' in lakebed.toml is wrong: input should be '', 'info' or"),
    ],
)
def test_what_makes_no_sense_in_a_file_is_named(text: str, says: str) -> None:
    Path(FILE_NAME).write_text(text)
    with pytest.raises(BadInput) as refused:
        read_settings(lease_seconds=1, tail_mib=1)  # also what an option goes before
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.hint is not None


def test_a_file_that_cannot_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(FILE_NAME).write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match=r"lakebed\.toml is not TOML"):
        read_settings()
    monkeypatch.setenv("LAKEBED_CONFIG", "nowhere.toml")
    with pytest.raises(BadInput, match=r"nowhere\.toml: no such file .*LAKEBED_CONFIG names it"):
        read_settings()
    monkeypatch.setenv("LAKEBED_CONFIG", str(folder))
    with pytest.raises(BadInput, match="is a directory"):
        read_settings()


def test_everything_wrong_is_found_and_the_rest_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(FILE_NAME).write_text('tail_mib = "x"\nsweep = 1\nlake = "shop"')
    monkeypatch.setenv("LAKEBED_SERVE_PORT", "http")
    monkeypatch.setenv("LAKEBED_QUERY_SECONDS", "-1")
    reading = look_up(serve_roles="cook")
    assert reading.settings == Settings(lake="shop")
    named = ["tail_mib", "'sweep'", "QUERY_SECONDS='-1'", "SERVE_PORT='http'", "--roles 'cook'"]
    assert len(reading.problems) == len(named)
    for name, problem in zip(named, reading.problems, strict=True):
        assert name in problem


def test_variables_that_look_like_ours_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEBED_LAEK", "shop")
    monkeypatch.setenv("LAKEBED_PORT", "tcp://10.0.0.7:4318")  # what Kubernetes sets
    monkeypatch.setenv("LAKEBED_TAIL_MIB", "1")
    assert unknown_variables() == {"LAKEBED_LAEK": "LAKEBED_LAKE", "LAKEBED_PORT": None}
    assert read_settings().serve_port == 4318


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("shop", "shop"),
        ("postgresql://db:5432/lake", "postgresql://db:5432/lake"),
        ("postgresql://me@db/lake", "postgresql://me@db/lake"),
        ("postgresql://me:hush@db/lake", "postgresql://me:***@db/lake"),
        ("postgresql://me:hu@s/h:@db/lake", "postgresql://me:***@db/lake"),
        ("postgresql://:hush@db/lake", "postgresql://:***@db/lake"),
        ("postgresql://db/lake?user=me&password=hush&x=1", "postgresql://db/lake?user=me&password=***&x=1"),
        ("postgresql://db/lake?sslpassword=hush", "postgresql://db/lake?sslpassword=***"),
    ],
)  # fmt: skip
def test_passwords_are_masked(text: str, shown: str) -> None:
    assert mask(text) == shown


def test_every_option_of_a_server_names_its_variable_and_its_default() -> None:
    root = typer.main.get_command(app)
    serve = root.commands["serve"]  # type: ignore[attr-defined]
    options = {f"serve_{each.name}": each.help for each in serve.params if each.name != "lake"}
    settings = {name for name in Settings.model_fields if name.startswith("serve_")}
    assert settings == options.keys()
    for name, text in options.items():
        default = Settings.model_fields[name].default
        assert variable(name) in text
        if default not in (None, False):
            assert f"default: {spell(default)}]" in text

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from draftmill.cli.store import app
from tests.store.conftest import fresh_url
from tests.support.s3_servers import ACCESS_KEY, SECRET_KEY, Server

runner = CliRunner()


def test_a_folder_passes_and_every_check_is_a_line(tmp_path: Path) -> None:
    result = runner.invoke(app, ["check", "--store", str(tmp_path / "store")])
    assert result.exit_code == 0
    assert "conditional_create" in result.stdout
    assert "keeps every promise" in result.stdout


def test_a_refused_store_ends_with_1_and_says_why(rclone: Server) -> None:
    result = runner.invoke(app, ["check", "--store", fresh_url(rclone), "--json"])
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["verdict"] == "refused"
    [refused] = [check for check in found["checks"] if check["status"] == "refused"]
    assert refused["name"] == "conditional_create"
    assert "overwrite" in refused["meaning"]


def test_a_downgraded_store_passes_and_says_what_it_means(moto: Server) -> None:
    result = runner.invoke(app, ["check", "--store", fresh_url(moto)])
    assert result.exit_code == 0
    assert "read back" in " ".join(result.stdout.split())


def test_the_store_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTMILL_STORE", str(tmp_path / "from-env"))
    result = runner.invoke(app, ["check", "--json"])
    assert json.loads(result.stdout)["store"] == str(tmp_path / "from-env")


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_store_out_of_reach_fails_in_one_sentence_without_secrets(flags: list[str], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n")
    url = "s3://bucket?endpoint_url=http://127.0.0.1:9"
    result = runner.invoke(app, ["check", "--store", url, "--credentials-file", str(secret), *flags])
    assert result.exit_code == 1
    assert "check that the server runs" in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert SECRET_KEY not in result.output
    if flags:
        assert json.loads(result.stdout)["code"] == "store.unreachable"

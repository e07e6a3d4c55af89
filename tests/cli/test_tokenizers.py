"""`draftmill tokenizers compare`: what it prints and ends with."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.inputs import qwen3_tokenizer, smollm2_gguf
from tests.tokenizers import synthetic as s


def compare(*arguments: Path | str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from draftmill.cli.main import main; main()", "tokenizers", "compare"]
    return subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)


def tokenizer(folder: Path, added: dict[int, str] | None = None) -> Path:
    s.write_tokenizer(folder, {10: "<x>", 11: "<y>"} if added is None else added, {"add_bos_token": False})
    (folder / "config.json").write_text('{"vocab_size": 16}')
    return folder


def test_a_pair_that_fits_ends_with_0(tmp_path):
    done = compare(tokenizer(tmp_path / "a"), tokenizer(tmp_path / "b"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "compatible"
    assert "texts from id 5 up: 11 compared, 0 differ" in done.stdout
    assert "identity: file" in done.stdout


def test_remarks_end_with_0_too(tmp_path):
    done = compare(tokenizer(tmp_path / "a"), s.write_tokenizer(tmp_path / "b", {10: "<x>", 11: "<y>"}))
    assert done.returncode == 0
    assert "remark the draft does not say whether it adds a bos" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("compatible with remarks: ")


def test_a_refused_pair_ends_with_1_and_shows_the_first_difference(tmp_path):
    done = compare(tokenizer(tmp_path / "a"), tokenizer(tmp_path / "b", {10: "<x>", 11: "<z>", 12: "\x1b[2J"}))
    assert done.returncode == 1
    assert "refused tokenizer.pair_text at id 11" in done.stdout
    assert done.stdout.splitlines()[-1] == "refused: id 11: target '<y>', draft '<z>'"
    assert "\x1b" not in done.stdout


def test_real_files_of_two_forms_side_by_side():
    done = compare(smollm2_gguf(), qwen3_tokenizer() / "tokenizer.json")
    rows = {line.split("  ")[0]: line.split()[-3:] for line in done.stdout.splitlines() if line}
    assert done.returncode == 1
    assert rows["tokens"] == ["49152", "151669", "refused"]
    assert rows["vocabulary type"][-2:] == ["BPE", "BPE"]
    assert rows["pre-tokenizer"] == ["qwen2", "not", "compared"]


def test_json_is_one_object_whatever_the_ending(tmp_path):
    fits = compare(tokenizer(tmp_path / "a"), tokenizer(tmp_path / "b"), "--json")
    value = json.loads(fits.stdout)
    assert (fits.returncode, value["verdict"], value["first_difference"], value["refusals"]) == (
        0,
        "compatible",
        None,
        [],
    )
    assert value["target"]["rule"] == value["draft"]["rule"] | {"size": 16, "kind": "BPE", "add_bos": False}
    assert (value["identity"]["level"], value["texts"]) == ("file", {"compared": 11, "different": 0})
    refused = compare(smollm2_gguf(), qwen3_tokenizer(), "--json")
    value = json.loads(refused.stdout)
    assert (refused.returncode, value["verdict"]) == (1, "refused")
    assert [each["code"] for each in value["refusals"]] == ["tokenizer.pair_size", "tokenizer.pair_text"]
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    broken = compare(smollm2_gguf(), tmp_path / "broken.gguf", "--json")
    assert (broken.returncode, json.loads(broken.stdout)["refusals"][0]["code"]) == (1, "gguf.header_truncated")


@pytest.mark.parametrize("arguments", [(), ("one",), ("/no/such/file", "/no/such/file")])
def test_wrong_usage_ends_with_2(arguments):
    done = compare(*arguments)
    assert (done.returncode, done.stdout) == (2, "")


def test_a_broken_file_ends_with_1_and_its_sentence_on_standard_error(tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"not a model")
    done = compare(tmp_path / "broken.gguf", smollm2_gguf())
    assert (done.returncode, done.stdout) == (1, "")
    assert "gguf.not_gguf" in done.stderr
    assert "target broken.gguf" in done.stderr

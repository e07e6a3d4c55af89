"""list, show, pull, verify, url and store index: what they print, how they end, and that the printed line serves."""

import contextlib
import json
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from draftmill.cli import index, list, main, pull, show, sign
from draftmill.cli.telling import printer
from draftmill.reports.measurement_json import report_json
from draftmill.store.index import Pairing, Reason, update_index
from draftmill.store.local import LocalStore
from draftmill.store.manifest import Licence
from tests.measurement.servers.test_flags import COMMON, REMOVED, SPRING, TODAY, UP_TO_JANUARY
from tests.store.drafters import START, contents, model_name, publish_drafter, refused_row
from tests.store.samples import digest
from tests.support.keys import key_pair
from tests.support.measured import FASTER, file, speed

SMALL = contents(["F16", "Q4_K_M"], size=1000)
Q4 = model_name("Q4_K_M")


@pytest.fixture(scope="module", autouse=True)
def mounted() -> None:
    main.app.command("list")(list.list_)
    main.app.command("show")(show.show)
    main.app.command("pull")(pull.pull)
    main.app.command("verify")(pull.verify)
    main.app.command("url")(pull.url)
    main.app.command("sign")(sign.sign)
    store = typer.Typer()
    store.command("index")(index.index)
    store.command("check")(lambda: None)
    main.app.add_typer(store, name="store")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path / "store")
    publish_drafter(store, tmp_path / "source", files=SMALL)
    return store


def run(store: LocalStore, *arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(
        main.app, [*arguments], env={"COLUMNS": "200", "DRAFTMILL_STORE": store.name} | environment
    )


def publish_report(store: LocalStore, run: str = "one", **changes: Any) -> None:
    """A measurement of Q4_K_M on "cpu"; FASTER's median is 1.51."""
    drafted = file("d.gguf", "d").model_copy(update={"sha256": digest(SMALL[Q4][1])})
    data = report_json(speed(FASTER).model_copy(update={"draft": drafted, **changes})).encode()
    store.create(f"reports/measure/{run}/report.json", data, digest(data))


def flat(text: str) -> str:
    return " ".join(text.split())


def test_list_shows_the_verdict_and_what_was_measured(store: LocalStore) -> None:
    publish_report(store)
    result = run(store, "list")
    assert result.exit_code == 0
    row = flat(result.stdout)
    for part in ("amd/PARD-Tiny", "PARD", "0.6B", "pass", "F16, Q4_K_M", "MIT", "cpu: faster 1.51x [1.42, 1.58]"):
        assert part in row
    assert "there is no index" in result.stderr


def test_list_prints_json_alone_on_standard_output(store: LocalStore) -> None:
    result = run(store, "list", "--json", "--verdict", "pass", "--family", "pard")
    found = json.loads(result.stdout)
    assert [row["entry"] for row in found["rows"]] == ["amd/PARD-Tiny"]
    assert found["from_index"] is False
    assert json.loads(run(store, "list", "--json", "--verdict", "refused").stdout)["rows"] == []


def test_list_says_when_nothing_is_like_that(store: LocalStore, tmp_path: Path) -> None:
    result = run(store, "list", "--family", "Gumiho")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "none of the 1 drafters here is like that" in result.stderr
    (tmp_path / "empty").mkdir()
    assert "the store is empty" in run(LocalStore(tmp_path / "empty"), "list").stderr


@pytest.mark.parametrize("arguments", [["list"], ["show", "a/b"], ["pull", "a/b"], ["url", "a/b"], ["store", "index"]])
def test_a_mistyped_store_is_not_an_empty_one(tmp_path: Path, arguments: Any) -> None:
    (tmp_path / "file").write_text("")
    for name, why in (("absent", "does not exist"), ("file", "is no folder")):
        result = run(LocalStore(tmp_path / name), *arguments)
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"failed store.no_folder: {tmp_path / name} {why}" in flat(result.stderr)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "--store", ""],
        ["list", "--credentials-file", " "],
        ["pull", "amd/PARD-Tiny", "-o", ""],
        ["pull", "amd/PARD-Tiny", "--public-key", ""],
        ["pull", ""],
        ["verify", ""],
        ["verify", "amd/PARD-Tiny", "--store", ""],
        ["sign", "amd/PARD-Tiny", "--key", ""],
    ],
)
def test_an_empty_option_is_wrong_usage_and_not_the_folder_one_is_in(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: Any
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    result = run(store, *arguments)
    assert result.exit_code == 2
    assert "is empty" in flat(result.stderr)
    assert not any(here.iterdir())


def test_store_index_writes_what_list_reads(store: LocalStore) -> None:
    publish_report(store)
    result = run(store, "store", "index")
    assert result.exit_code == 0
    assert "1 rows of 1 drafters" in result.stdout
    listed = run(store, "list", "--device", "CPU", "--target", "target", "--json")
    assert json.loads(listed.stdout)["from_index"] is True
    assert len(json.loads(listed.stdout)["rows"]) == 1
    assert json.loads(run(store, "list", "--device", "npu", "--json").stdout)["rows"] == []


def test_store_index_ends_with_1_when_something_cannot_be_read(store: LocalStore) -> None:
    store.create("reports/measure/bad/report.json", b"[]", digest(b"[]"))
    result = run(store, "store", "index")
    assert result.exit_code == 1
    assert "reports/measure/bad/report.json is left out" in flat(result.stderr)
    assert store.head("index.json") is not None
    assert store.head("index.html") is not None


def test_show_tells_origin_licence_proofs_measurements_and_history(store: LocalStore, tmp_path: Path) -> None:
    publish_drafter(store, tmp_path / "newer", files=SMALL, day=4, recipe="ab" * 32)
    publish_report(store)
    result = run(store, "show", "PARD-Tiny")
    assert result.exit_code == 0
    said = flat(result.stdout)
    for part in (
        "made from amd/PARD-Tiny at 0123456789ab",
        "notice Built with Tiny",
        "cannot Drafts K tokens",
        "proof.json: 1 of 1 checks pass (eos)",
        f"{Q4.removesuffix('.gguf')}.check.json: pass",
        digest(SMALL[Q4][1]),
        "cpu speed with target.gguf, 2026-01-01T12:00:00+00:00: faster, identical: 1.510x [1.420, 1.580] over 10 pairs",
        "tokens/round, untruncated",
        "earlier 0123456789ab-feedface: pass, 2026-01-01",
    ):
        assert part in said, part


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        (["pull", "PARD-Tiny", "-o", "out"], "interrupted; what was finished is kept: the same command goes on\n"),
        (["list"], "interrupted\n"),
    ],
)
def test_an_interrupt_is_one_sentence_and_130(store: LocalStore, tmp_path: Path, verb: Any, said: str) -> None:
    """The signal arrives when the verb asks for its catalogue's module."""
    code = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "draftmill.store.catalogue":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from draftmill.cli.main import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, *verb, "--store", store.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", said)


@pytest.mark.parametrize("damage", [b"{", b'{"schema_version": 2, "written": "2026-01-01T00:00:00Z", "rows": []}'])
def test_an_index_that_cannot_be_read_stops_no_reader(store: LocalStore, tmp_path: Path, damage: bytes) -> None:
    assert run(store, "store", "index").exit_code == 0
    arguments = (["list"], ["show", "PARD-Tiny"], ["pull", "PARD-Tiny", "-o", str(tmp_path / "out")])
    assert "passed over" not in "".join(run(store, *each).stderr for each in arguments)
    path = store.root / "index.json"
    path.chmod(0o600)
    path.write_bytes(damage)
    for each in arguments:
        result = run(store, *each)
        assert result.exit_code == 0
        assert "amd/PARD-Tiny" in result.stdout
        assert result.stderr.count("index.json is passed over") == 1
    url = run(store, "url", "PARD-Tiny", "--file", Q4)
    assert (url.exit_code, url.stdout.startswith("file:///")) == (0, True)
    unknown = run(store, "show", "amd/Nothing")
    assert (unknown.exit_code, "index.json is passed over" in unknown.stderr) == (1, True)
    assert "index.unreadable" in run(store, "store", "index").stderr  # who writes does not lose what it holds


def test_show_tells_every_finding_and_every_pair(store: LocalStore) -> None:
    first = Reason(code="gate.one", where="a.json", sentence="The first.", measured=["a", 1], expected="32 bytes")
    second = Reason(code="gate.two", where="b.json", sentence="The second.", measured=0, would_change="A file.")
    pairs = (
        Pairing(target="Q/On", verdict="compatible", off_pair=False),
        Pairing(target="Q/Off", verdict="compatible with remarks", off_pair=True, why="two tokens differ"),
        Pairing(target="Q/Gated", verdict="not judged", why="it is gated"),
    )
    reason = first.model_copy(update={"measured": None, "expected": None})
    update_index(store, [refused_row(reason=reason, findings=(first, second), more_findings=3, pairs=pairs)])
    lines = [flat(line) for line in run(store, "show", "amd/Gumiho-8B").stdout.splitlines()]
    assert lines[2:] == [
        "reason gate.one at a.json: The first.",
        'measured ["a", 1]',
        "expected 32 bytes",
        "also gate.two at b.json: The second.",
        "measured 0",
        "would help A file.",
        "more 3 others",
        "pair Q/On: compatible",
        "pair Q/Off: compatible with remarks, off-pair: it was trained for others; two tokens differ",
        "pair Q/Gated: not judged, for which it was trained is not known; it is gated",
        "licence none named",
        f"version {'0123456789ab'}, {START:%Y-%m-%d}",
        "manifest none: nothing was published",
    ]


def test_what_goes_into_a_pipe_is_neither_wrapped_nor_cut(store: LocalStore, tmp_path: Path) -> None:
    name = "amd/" + "-".join(["A-very-long-name"] * 8)
    publish_drafter(store, tmp_path / "b", name, files=SMALL)
    listed = run(store, "list", COLUMNS="40").stdout
    assert [line for line in listed.splitlines() if name in line and "F16, Q4_K_M" in line]
    shown = run(store, "show", "PARD-Tiny", COLUMNS="40").stdout
    assert [line for line in shown.splitlines() if Q4 in line and digest(SMALL[Q4][1]) in line]


def test_on_a_terminal_tables_keep_to_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert printer().width == 40
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    assert printer().width > 10_000


def test_show_prints_the_evidence_whole_as_json(store: LocalStore) -> None:
    found = json.loads(run(store, "show", "PARD-Tiny", "--json").stdout)
    assert found["evidence"]["proof.json"]["drafter"]["pard_token"] == 7
    assert found["manifest"]["entry"] == "amd/PARD-Tiny"
    assert found["row"]["quants"][1]["encoding"] == "Q4_K_M"


@pytest.mark.parametrize("verb", ["show", "pull", "url"])
def test_an_unknown_name_ends_with_1_and_names_that_are_near(store: LocalStore, verb: str) -> None:
    result = run(store, verb, "amd/PARD-Tinny")
    assert result.exit_code == 1
    assert "near it are amd/PARD-Tiny" in flat(result.stderr)
    told = json.loads(run(store, verb, "amd/PARD-Tinny", "--json").stdout)
    assert (told["outcome"], told["code"]) == ("refused", "reference.unknown")


def test_text_from_the_store_moves_no_cursor(store: LocalStore, tmp_path: Path) -> None:
    licence = Licence(id="mit", statement="\x1b[2J[red]mine")
    publish_drafter(store, tmp_path / "b", "amd/Odd", files=SMALL, notices=("\x1b[31mBuilt",), licence=licence)
    for arguments in (["show", "amd/Odd"], ["pull", "amd/Odd", "-o", str(tmp_path / "out")]):
        result = run(store, *arguments)
        assert result.exit_code == 0
        assert "\x1b" not in result.stdout
        assert r"\x1b[31mBuilt" in result.stdout


def test_pull_writes_a_folder_that_verify_passes(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(store, "pull", "amd/PARD-Tiny", "--quant", "Q4_K_M")
    assert result.exit_code == 0
    said = flat(result.stdout)
    assert "verified amd/PARD-Tiny@0123456789ab-feedface: 5 files in PARD-Tiny" in said
    assert "Built with Tiny" in said
    assert "cannot Drafts K tokens in one pass only" in said
    assert (tmp_path / "PARD-Tiny" / Q4).read_bytes() == SMALL[Q4][1]
    verified = run(store, "verify", "PARD-Tiny", "--store", store.name)
    assert verified.exit_code == 0
    assert "pass 5 files" in flat(verified.stdout)
    again = json.loads(run(store, "pull", "amd/PARD-Tiny", "--quant", "Q4_K_M", "--json").stdout)
    assert (again["received"], len(again["files"]), len(again["serve"])) == (0, 5, 1)


def test_pull_says_when_the_newest_verdict_is_another_one(store: LocalStore, tmp_path: Path) -> None:
    assert "older publication" not in run(store, "pull", "PARD-Tiny", "-o", str(tmp_path / "out")).stderr
    update_index(store, [refused_row("amd/PARD-Tiny", created=START.replace(year=2027))])
    result = run(store, "pull", "PARD-Tiny", "-o", str(tmp_path / "out"))
    assert result.exit_code == 0
    assert "the newest verdict on amd/PARD-Tiny is refused, gumiho.no_config" in flat(result.stderr)


def test_verify_ends_with_1_for_other_bytes_and_3_where_nothing_can_be_told(store: LocalStore, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(store, "pull", "PARD-Tiny", "-o", str(out))
    (out / Q4).write_bytes(b"other")
    result = run(store, "verify", str(out))
    assert result.exit_code == 1
    assert "verify.bytes_differ" in result.stdout
    told = json.loads(run(store, "verify", str(out), "--json").stdout)
    assert (told["verdict"], told["refusals"][0]["code"]) == ("refused", "verify.bytes_differ")
    assert run(store, "verify", str(tmp_path)).exit_code == 3
    assert json.loads(run(store, "verify", str(tmp_path), "--json").stdout)["verdict"] == "no verdict"


def test_url_prints_an_address_alone_for_one_file(store: LocalStore) -> None:
    result = run(store, "url", "PARD-Tiny", "--file", Q4)
    with urllib.request.urlopen(result.stdout.strip()) as answer:
        assert answer.read() == SMALL[Q4][1]
    lines = run(store, "url", "PARD-Tiny").stdout.splitlines()
    assert [line.partition("\t")[0] for line in lines] == [*SMALL]


def engine(folder: Path, help_: str) -> Path:
    """A program whose --help is this text."""
    (folder / "help.txt").write_text(help_)
    program = folder / "llama-server"
    program.write_text(f'#!/bin/sh\nexec cat "{folder}/help.txt"\n')
    program.chmod(0o755)
    return program


ERAS = {
    "up to January 2026": (COMMON + UP_TO_JANUARY, "--model-draft DRAFT --draft-max 4 --draft-min 0 --draft-p-min 0.0"),
    "spring 2026": (
        COMMON + REMOVED + SPRING,
        "--spec-draft-model DRAFT --spec-draft-n-max 4 --spec-draft-n-min 0 --spec-draft-p-min 0.0 --spec-type draft",
    ),
    "today": (
        COMMON + REMOVED + TODAY,
        "--spec-draft-model DRAFT --spec-draft-n-max 4 --spec-draft-n-min 0 --spec-draft-p-min 0.0 "
        "--spec-type draft-simple",
    ),
}


@pytest.mark.parametrize("era", ERAS)
def test_the_printed_line_has_the_flags_of_the_engine_at_hand(store: LocalStore, tmp_path: Path, era: str) -> None:
    help_, flags = ERAS[era]
    program, out = engine(tmp_path, help_), tmp_path / "out"
    result = run(store, "pull", "PARD-Tiny", "--quant", "Q4_K_M", "-o", str(out), "--engine", str(program))
    assert f"{program} --model TARGET.gguf {flags.replace('DRAFT', str(out / Q4))}" in flat(result.stdout)
    assert f"With {program}, by its own --help" in flat(result.stdout)


def test_without_an_engine_the_line_is_that_of_today_and_says_so(store: LocalStore, tmp_path: Path) -> None:
    result = run(store, "pull", "PARD-Tiny", "--quant", "Q4_K_M", "-o", str(tmp_path / "out"))
    assert "With llama-server since June 2026 (and xllamacpp)" in flat(result.stdout)
    assert f"llama-server --model TARGET.gguf {ERAS['today'][1]}".replace("DRAFT", str(tmp_path / "out" / Q4)) in flat(
        result.stdout
    )
    assert "not measured yet" in result.stdout


def test_the_numbers_of_the_line_are_those_that_were_measured_to_be_faster(store: LocalStore, tmp_path: Path) -> None:
    regime = speed(FASTER).regime
    publish_report(store, "faster", regime=regime.model_copy(update={"n_max": 7, "n_min": 1, "p_min": 0.25}))
    publish_report(store, "newer", started="2027-01-01T00:00:00+00:00", samples=speed((0.5,) * 10).samples)
    run(store, "store", "index")
    result = run(store, "pull", "PARD-Tiny", "--quant", "Q4_K_M", "-o", str(tmp_path / "out"))
    assert "--spec-draft-n-max 7 --spec-draft-n-min 1 --spec-draft-p-min 0.25" in flat(result.stdout)
    assert "as measured on cpu with target.gguf: faster" in flat(result.stdout)


def test_an_engine_that_is_none_is_told_before_anything_is_fetched(store: LocalStore, tmp_path: Path) -> None:
    result = run(store, "pull", "PARD-Tiny", "-o", str(tmp_path / "out"), "--engine", str(tmp_path / "nothing"))
    assert result.exit_code == 1
    assert "is no executable file" in flat(result.stderr)
    assert not (tmp_path / "out").exists()


@contextlib.contextmanager
def serving(command: "list[str]") -> Iterator[str]:  # type: ignore[valid-type]
    """A server's address, once it listens."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stderr is not None
            log = []
            for line in process.stderr:
                log.append(line)
                if found := re.search(r"listening on (?:http://)?([\d.]+:\d+)", line):
                    yield f"http://{found[1]}"
                    return
            raise AssertionError("".join(log))
        finally:
            process.kill()


def test_a_pulled_draft_is_served_by_the_printed_line(tmp_path: Path) -> None:
    """By llama.cpp out of xllamacpp, with the flags as printed and what it wants beyond them."""
    from tests.support.pairs import small

    pair, store = small(), LocalStore(tmp_path / "store")
    files = {model_name("Q8_0"): ("model", pair.draft.read_bytes())}
    publish_drafter(store, tmp_path / "source", files=files)
    found = json.loads(run(store, "pull", "PARD-Tiny", "-o", str(tmp_path / "out"), "--json").stdout)
    [line] = found["serve"]
    program, *flags = shlex.split(line.replace("TARGET.gguf", str(pair.target)))
    assert program == "llama-server"
    child = [sys.executable, "-m", "draftmill.measurement.servers.xllamacpp_server"]
    with serving([*child, *flags, "--ctx-size", "256", "--threads", "1"]) as address:
        asked = json.dumps({"prompt": "The capital of France is", "n_predict": 24, "temperature": 0}).encode()
        request = urllib.request.Request(f"{address}/completion", asked, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            timings = json.load(answer)["timings"]
    assert timings["draft_n"] > 0
    assert timings["draft_n_accepted"] > 0


@pytest.mark.stock
def test_a_pulled_draft_is_served_by_debians_llama_server_with_the_line_as_printed(tmp_path: Path) -> None:
    from tests.support.pairs import small
    from tests.support.stock import llama_quantize

    *prefix, quantize = llama_quantize()
    program = tmp_path / "llama-server"
    program.write_text(f'#!/bin/sh\nexec {shlex.join([*prefix, str(Path(quantize).with_name("llama-server"))])} "$@"\n')
    program.chmod(0o755)
    pair, store = small(), LocalStore(tmp_path / "store")
    publish_drafter(store, tmp_path / "source", files={model_name("Q8_0"): ("model", pair.draft.read_bytes())})
    pulled = run(store, "pull", "PARD-Tiny", "-o", str(tmp_path / "out"), "--engine", str(program), "--json")
    [line] = json.loads(pulled.stdout)["serve"]
    command = shlex.split(line.replace("TARGET.gguf", str(pair.target)))
    assert command[0] == str(program)
    from tests.support.s3_servers import free_ports

    [port] = free_ports(1)
    with serving([*command, "--port", str(port)]) as address:
        asked = json.dumps({"prompt": "The capital of France is", "n_predict": 24, "temperature": 0}).encode()
        request = urllib.request.Request(f"{address}/completion", asked, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["timings"]["draft_n"] > 0


def test_sign_then_pull_and_verify_with_the_public_key(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each way in which it is not signed so has its own code, and ends with 1; a key that is none is told likewise."""
    monkeypatch.chdir(tmp_path)
    pair, other = key_pair(tmp_path), key_pair(tmp_path, "other")

    def verdict(*arguments: str) -> tuple[int, str]:
        result = run(store, "verify", *arguments, "--json")
        refusals = json.loads(result.stdout).get("refusals") or [{"code": json.loads(result.stdout).get("code")}]
        return result.exit_code, refusals[0]["code"]

    pull_signed = ["pull", "amd/PARD-Tiny", "--public-key", str(pair.public)]
    assert "signature.missing" in run(store, *pull_signed).stderr
    assert not (tmp_path / "PARD-Tiny").exists()
    signed = json.loads(run(store, "sign", "amd/PARD-Tiny", "--key", str(pair.private), "--json").stdout)
    assert signed["created"] and signed["signature"].endswith("/model.sig")
    assert "signed by the key" in flat(run(store, "show", "amd/PARD-Tiny").stdout)
    again = run(store, "sign", "amd/PARD-Tiny", DRAFTMILL_SIGN_KEY=str(pair.private))
    assert (again.exit_code, "signed before" in again.stdout) == (0, True)
    pulled = run(store, *pull_signed)
    assert pulled.exit_code == 0, pulled.output
    assert "signed by the key of" in flat(pulled.stdout)
    for place in (["PARD-Tiny"], ["amd/PARD-Tiny", "--store", store.name]):
        assert run(store, "verify", *place, "--public-key", str(pair.public)).exit_code == 0
        assert verdict(*place, "--public-key", str(other.public)) == (1, "signature.other_key")
        assert verdict(*place, "--public-key", str(pair.private)) == (1, "signing.key")
    (tmp_path / "PARD-Tiny" / Q4).write_bytes(b"x")
    assert verdict("PARD-Tiny", "--public-key", str(pair.public)) == (1, "verify.bytes_differ")


def test_verify_takes_its_store_from_the_environment(store: LocalStore, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(store, "pull", "amd/PARD-Tiny", "-o", str(out))
    assert run(store, "verify", "amd/PARD-Tiny").exit_code == 0
    nowhere = run(store, "verify", "amd/PARD-Tiny", DRAFTMILL_STORE="")
    assert nowhere.exit_code == 3
    assert "--store or DRAFTMILL_STORE" in flat(nowhere.stderr)
    published = next(store.root.rglob("manifest.json"))
    published.chmod(0o600)
    published.write_bytes(published.read_bytes() + b"\n")
    differs = run(store, "verify", str(out))
    assert (differs.exit_code, "verify.manifest_differs" in differs.stdout) == (1, True)
    assert "are as published, and 1 finding says what is not" in flat(differs.stdout)
    assert run(store, "verify", str(out), DRAFTMILL_STORE="").exit_code == 0


def test_verify_reads_a_publication_where_it_lies(store: LocalStore) -> None:
    place = ["amd/PARD-Tiny", "--store", store.name]
    assert run(store, "verify", *place).exit_code == 0
    folder = next(Path(store.name).glob("models/amd/PARD-Tiny/*"))
    (folder / "more.gguf").write_bytes(b"x")
    (folder / Q4).unlink()
    told = json.loads(run(store, "verify", *place, "--json").stdout)
    assert sorted(refusal["code"] for refusal in told["refusals"]) == ["verify.missing", "verify.unlisted"]

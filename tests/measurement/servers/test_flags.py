"""The flags of each era, from help texts written after its facts, and what a binary cannot be told."""

import sys
from pathlib import Path

import pytest

from draftmill.measurement.servers.flags import (
    Drafting,
    Settings,
    check_environment,
    clean_environment,
    command_line,
    parse_help,
    read_help,
)
from draftmill.outcome import BadConfiguration, Refused

COMMON = """----- common params -----

-h,    --help, --usage                  print usage and exit
-t,    --threads N                      number of CPU threads (default: -1)
                                        (env: LLAMA_ARG_THREADS)
-c,    --ctx-size N                     size of the context
-np,   --parallel N                     number of slots
-m,    --model FNAME                    model path
-ngl,  --gpu-layers, --n-gpu-layers N   layers in VRAM
--host HOST                             address
--port PORT                             port
--metrics                               counters
--top-k N                               sampling, see also --spec-type and --draft-max
"""
UP_TO_JANUARY = """
-md,   --model-draft FNAME              draft model
--draft-max, --draft, --draft-n N       number of tokens to draft (default: 16)
                                        (env: LLAMA_ARG_DRAFT_MAX)
--draft-min, --draft-n-min N            least number of tokens to draft
--draft-p-min P                         least probability (default: 0.8)
-td,   --threads-draft N                threads for the draft
"""
NGRAMS = """
--spec-type [none|ngram-cache|ngram-simple]
                                        what to use when there is no draft model
"""
REMOVED = """
-td,   --threads-draft, --spec-draft-threads N
                                        threads for the draft
-md,   --model-draft, --spec-draft-model FNAME
                                        draft model
--spec-draft-n-max N                    number of tokens to draft
--spec-draft-n-min N                    least number of tokens to draft
--spec-draft-p-min, --draft-p-min P     least probability
--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max
                                        (env: LLAMA_ARG_DRAFT_MAX)
--draft-min, --draft-n-min N            the argument has been removed. use --spec-draft-n-min
"""
SPRING = """
--spec-type [none|draft|ngram-cache|ngram-simple]
                                        type of speculation
"""
TODAY = """
--spec-type none,draft-simple,draft-mtp,ngram-simple
                                        comma-separated list of types
--spec-synth-len N                      fake acceptance, benchmarking only
"""
DRAFTING = Drafting(Path("d.gguf"), n_max=4, n_min=1, p_min=0.5, threads=2)
OLD_NUMBERS = {"--draft-max": "4", "--draft-min": "1", "--draft-p-min": "0.5", "--threads-draft": "2"}
NEW_NUMBERS = {
    "--spec-draft-n-max": "4",
    "--spec-draft-n-min": "1",
    "--spec-draft-p-min": "0.5",
    "--spec-draft-threads": "2",
}


def settings(draft: Drafting | None = DRAFTING, extra: tuple[str, ...] = ()) -> Settings:
    return Settings(Path("t.gguf"), context=512, threads=3, draft=draft, extra=extra)


def pairs(line: list[str]) -> dict[str, str]:
    """Flags with values; --metrics, the only switch here, is taken out."""
    rest = [token for token in line if token != "--metrics"]
    return dict(zip(rest[::2], rest[1::2], strict=True))


@pytest.mark.parametrize(
    ("help_text", "expected"),
    [
        (UP_TO_JANUARY, {"--model-draft": "d.gguf", **OLD_NUMBERS}),
        (UP_TO_JANUARY + NGRAMS, {"--model-draft": "d.gguf", **OLD_NUMBERS}),
        (REMOVED + SPRING, {"--spec-draft-model": "d.gguf", **NEW_NUMBERS, "--spec-type": "draft"}),
        (REMOVED + TODAY, {"--spec-draft-model": "d.gguf", **NEW_NUMBERS, "--spec-type": "draft-simple"}),
    ],
    ids=["before January 2026", "January to April", "April to June", "after June"],
)
def test_each_era_is_told_everything_in_its_own_names(help_text, expected):
    line = command_line(parse_help(COMMON + help_text), settings())
    target = {"--model": "t.gguf", "--ctx-size": "512", "--threads": "3", "--parallel": "1"}
    assert "--metrics" in line
    assert pairs(line) == target | expected


def test_a_target_alone_gets_no_draft_flag():
    line = command_line(parse_help(COMMON + REMOVED + TODAY), settings(draft=None))
    assert not any("draft" in token or "spec" in token for token in line)


def test_an_unused_draft_can_be_asked_for_only_where_loading_it_does_not_use_it():
    unused = Drafting(Path("d.gguf"), n_max=4, n_min=1, p_min=0.5, spec_type="none")
    assert pairs(command_line(parse_help(COMMON + REMOVED + TODAY), settings(unused)))["--spec-type"] == "none"
    for era in (UP_TO_JANUARY, UP_TO_JANUARY + NGRAMS):
        with pytest.raises(Refused) as refused:
            command_line(parse_help(COMMON + era), settings(unused))
        assert refused.value.code == "flags.spec_type"


def test_everything_that_cannot_be_told_is_named_at_once():
    without = COMMON.replace("--metrics ", "--other ") + UP_TO_JANUARY.replace("--draft-p-min", "--draft-q-min")
    extra = ("--spec-synth-len", "3", "--host", "0.0.0.0", "--no-such-thing", "-1", "--top-k", "-5")
    with pytest.raises(Refused) as refused:
        command_line(parse_help(without), settings(extra=extra))
    assert [(refusal.code, refusal.where) for refusal in refused.value.refusals] == [
        ("flags.missing", "--metrics"),
        ("flags.missing", "--spec-draft-p-min"),
        ("flags.synthetic", "--spec-synth-len"),
        ("flags.owned", "--host"),
        ("flags.unknown", "--no-such-thing"),
    ]


def test_an_owned_flag_is_refused_in_its_form_with_an_equals_sign_too():
    with pytest.raises(Refused) as refused:
        command_line(parse_help(COMMON), settings(draft=None, extra=("--port=80",)))
    assert refused.value.code == "flags.owned"


def test_an_owned_flag_is_refused_by_any_of_its_names():
    extra = ("-md", "x.gguf", "--n-gpu-layers", "9", "-c", "1", "--spec-draft-p-min", "1")
    with pytest.raises(Refused) as refused:
        command_line(parse_help(COMMON + REMOVED + TODAY), settings(extra=extra))
    assert [refusal.where for refusal in refused.value.refusals] == list(extra[::2])
    assert {refusal.code for refusal in refused.value.refusals} == {"flags.owned"}


def test_options_that_change_what_is_computed_are_given_where_they_exist():
    later = "--spec-draft-sampling {greedy,probabilistic}\n                 how\n-fit,  --fit [on|off]  whether\n"
    line = pairs(command_line(parse_help(COMMON + REMOVED + TODAY + later), settings()))
    assert (line["--spec-draft-sampling"], line["--fit"]) == ("greedy", "off")


def test_flags_of_a_profile_come_last_and_unchanged():
    line = command_line(parse_help(COMMON), settings(draft=None, extra=("--top-k", "40")))
    assert line[-2:] == ["--top-k", "40"]


def test_a_removed_option_is_listed_and_not_taken():
    found = parse_help(COMMON + REMOVED + TODAY)
    assert found["--draft-max"].removed
    assert not found.has("--draft-max")
    assert found.has("--spec-draft-n-max")
    # A mention in another option's description makes no option of it.
    assert not parse_help(COMMON).has("--draft-max")
    assert found["--spec-type"].choices == {"none", "draft-simple", "draft-mtp", "ngram-simple"}
    assert found["-ngl"].names == ("-ngl", "--gpu-layers", "--n-gpu-layers")
    assert (found["--metrics"].value, found["--host"].value) == ("", "HOST")


def test_no_flag_and_no_secret_hides_in_the_environment():
    shell = {
        "LLAMA_ARG_DRAFT_MAX": "16",
        "LLAMA_ARG_N_GPU_LAYERS": "9",
        "LLAMA_API_KEY": "x",
        "HF_TOKEN": "x",
        "PATH": "/bin",
        "GGML_VK_VISIBLE_DEVICES": "0",
        "MY_LLAMA_ARG": "kept",
    }
    kept = {"PATH": "/bin", "GGML_VK_VISIBLE_DEVICES": "0", "MY_LLAMA_ARG": "kept"}
    assert clean_environment(shell) == kept
    check_environment(kept)
    with pytest.raises(Refused) as refused:
        check_environment(shell)
    assert {refusal.where for refusal in refused.value.refusals} == set(shell) - set(kept) - {"HF_TOKEN"}


def script(folder: Path, text: str) -> Path:
    path = folder / "llama-server"
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


def test_a_help_is_read_once_for_a_digest(tmp_path):
    path = script(tmp_path, f"print({COMMON!r}); open({str(tmp_path / 'runs')!r}, 'a').write('x')")
    for digest in ("one", "one", "two"):
        assert read_help((str(path),), digest, {}).has("--model")
    assert (tmp_path / "runs").read_text() == "xx"


@pytest.mark.parametrize(
    "text", ["print('usage: something else')", f"print({COMMON!r}); raise SystemExit('no libllama.so')"]
)
def test_what_gives_no_help_of_a_llama_server_is_a_bad_configuration(tmp_path, text):
    with pytest.raises(BadConfiguration, match="no llama-server") as error:
        read_help((str(script(tmp_path, text)),), "digest", {})
    assert error.value.code == "flags.help"


def test_a_file_that_cannot_run_is_a_bad_configuration(tmp_path):
    (tmp_path / "llama-server").write_text("text")
    with pytest.raises(BadConfiguration, match="cannot be run"):
        read_help((str(tmp_path / "llama-server"),), "digest", {})

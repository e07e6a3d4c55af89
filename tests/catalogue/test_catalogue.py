"""The catalogue file: what is shipped in it, and every wrong line told."""

from pathlib import Path

import pytest

from draftmill.catalogue.catalogue import Catalogue, load_catalogue
from draftmill.catalogue.donors import donor_of
from draftmill.configuration import config_path
from draftmill.licences.lineage import Start, trace
from draftmill.outcome import BadConfiguration
from tests.support.catalogue_hub import CATALOGUE

PARD = "Llama-3.2-1B Llama-4-1B DeepSeek-R1-Distill-Qwen-1.5B Qwen2.5-0.5B Qwen3-0.6B"
PARD2 = "Llama-3.1-8B Qwen3-8B Qwen3-14B"
GUMIHO = "vicuna-7b vicuna-13b llama2-7b llama2-13b llama2-70b llama3-8b llama3-70b"


@pytest.fixture(scope="module")
def shipped() -> Catalogue:
    return load_catalogue(config_path("catalogue.yaml"))


def told(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "catalogue.yaml"
    path.write_text(text)
    with pytest.raises(BadConfiguration) as caught:
        load_catalogue(path)
    assert caught.value.code == "catalogue.file"
    return [line.removeprefix(f"{path}, ") for line in str(caught.value).splitlines()]


def test_every_drafter_that_the_vendors_name_has_a_row_of_its_family(shipped: Catalogue) -> None:
    expected = {f"amd/PARD-{name}": "PARD" for name in PARD.split()}
    expected |= {f"amd/PARD2-{name}": "PARD-2" for name in PARD2.split()}
    expected |= {f"amd/Gumiho-{name}": "Gumiho" for name in GUMIHO.split()}
    expected |= {
        "FastFlowLM/Nemotron-3.5-Bolt-E4B-DFlash-NPU2": "DFlash",
        "FastFlowLM/Qwen3.8-27B-DFlash2-NPU2": "DFlash 2",
    }
    expected["nvidia/NVIDIA-Nemotron-3.5-Bolt-E4B-4GB-DFlash"] = "DFlash GGUF"
    assert {repo: row.family for repo, row in shipped.drafters.items() if repo in expected} == expected
    others = set(shipped.drafters) - expected.keys()
    assert {shipped.drafters[repo].family for repo in others} == {"DFlash checkpoint"}


def test_each_rows_family_has_its_name_too(shipped: Catalogue) -> None:
    for repo, row in shipped.drafters.items():
        assert shipped.family_by_name(repo) == row.family, repo


def test_every_pard_2_has_a_donor_and_a_refused_family_says_what_would_change_that(shipped: Catalogue) -> None:
    targets = {"z-lab/Qwen3-4B-DFlash-b16": "Qwen/Qwen3-4B"}
    """Of checkpoints, whose target's vocabulary is written."""
    for repo, row in shipped.drafters.items():
        assert (row.donor is not None) == (row.family == "PARD-2" or repo in targets), repo
    assert {repo: (shipped.drafters[repo].donor or "").partition("@")[0] for repo in targets} == targets
    gumiho = shipped.families["Gumiho"]
    codes = [reason.code for reason in gumiho.reasons]
    assert codes == ["gumiho.no_config", "gumiho.pickle_only", "gumiho.flat_verifier"]
    assert all(reason.would_change and reason.source for reason in gumiho.reasons)


def test_every_row_of_a_llama_inherits_its_licence_and_has_a_name_that_it_allows(shipped: Catalogue) -> None:
    """All but one, of which nobody says what it was made from: its name alone keeps it from being published."""
    inherited = {}
    for repo, row in shipped.drafters.items():
        if row.family in ("PARD", "PARD-2"):
            starts = [Start(name, "base", "") for name in (*row.derived_from, *row.trained_for)]
            found = {each.licence for each in trace(starts)}
            assert None not in found, repo
            inherited[repo] = sorted(str(each) for each in found if str(each).startswith("llama"))
            if "Llama" in repo:
                assert row.publish_as and row.publish_as.startswith("amd/Llama-"), repo
    assert {repo: ids for repo, ids in inherited.items() if ids or "Llama" in repo} == {
        "amd/PARD-Llama-3.2-1B": ["llama3.1", "llama3.2", "llama3.3"],
        "amd/PARD2-Llama-3.1-8B": ["llama3.1", "llama3.2"],
        "amd/PARD-Llama-4-1B": [],
    }


def test_texts_of_licences_lie_beside_the_file_and_have_to_be_there(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "LICENSE").write_text("text")
    path = tmp_path / "catalogue.yaml"
    path.write_text(CATALOGUE + "licences:\n  Llama3.2: {files: [texts/LICENSE]}\n")
    assert load_catalogue(path).licences == {"llama3.2": (tmp_path / "texts" / "LICENSE",)}
    lines = told(
        tmp_path,
        CATALOGUE.replace("{family: Gumiho}", "{family: Gumiho, licence_files: [gone]}")
        + "licences:\n  llama3.2: {files: [texts/LICENSE, texts/gone]}\n  mine: {files: [texts/LICENSE]}\n"
        + "  gemma: {}\n",
    )
    expected = ("no licence of this name", f"no file {tmp_path / 'texts' / 'gone'}", f"no file {tmp_path / 'gone'}")
    assert len(lines) == 4
    assert "licences.gemma.files: is missing" in " ".join(lines)
    for words in expected:
        assert any(words in line for line in lines), (words, lines)


def test_the_donor_of_a_repository_is_its_rows(shipped: Catalogue, tmp_path: Path) -> None:
    path = config_path("catalogue.yaml")
    assert donor_of("amd/PARD2-Qwen3-8B", path) == "Qwen/Qwen3-8B@b968826d9c46dd6066d109eabc6255188de91218"
    assert donor_of("amd/PARD-Qwen3-0.6B", path) is None
    assert donor_of("acme/unknown", path) is None
    assert donor_of("amd/PARD2-Qwen3-8B", tmp_path / "absent.yaml") is None


def test_every_wrong_line_is_told_by_its_number(tmp_path: Path) -> None:
    lines = told(
        tmp_path,
        """families:
  A:
    route: GGUF
    names: [amd/A-*, x]
    sign: []
  B:
    route: refuse
    names: ["*/B"]
    signs: [{config: {a: b}}]
  C:
    route: gguf
    names: [amd/C-*]
    signs: [{files: ["*.bin"], tensor: [x]}]
    reasons: [{code: C, expected: something else, sentence: a sentence, source: some source, would_change: time}]
drafters:
  amd: {}
  amd/x:
    family: D
    donor: Qwen/Q
    licence_files: LICENSE
    trained_for: [x]
    publish_as: amd/.x
targets:
  Qwen/Q: {revision: a..b}
other: 3
""",
    )
    assert [line.partition(": ")[0] for line in lines] == [
        "line 2, families.A.signs",
        "line 3, families.A.route",
        "line 4, families.A.names.1",
        "line 5, families.A.sign",
        "line 8, families.B.names.0",
        "line 13, families.C.signs.0.tensor",
        "line 14, families.C.reasons.0.code",
        "line 14, families.C.reasons.0.would_change",
        "line 16, drafters.amd",
        "line 19, drafters.amd/x.donor",
        "line 20, drafters.amd/x.licence_files",
        "line 21, drafters.amd/x.trained_for.0",
        "line 22, drafters.amd/x.publish_as",
        "line 24, targets.Qwen/Q.revision",
        "line 25, other",
    ]
    assert lines[0].endswith(": is missing")
    assert lines[3].endswith(": is no key here")


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("{family: Gumiho}", "{family: Gumihi}", "drafters.tiny/Gumiho-small-1m.family", "no family Gumihi"),
        ("route: refuse", "route: gguf", "families.Gumiho", "reasons and the route refuse belong together"),
        ("        measured: a tree of 63 drafts in a round\n", "", "families.Gumiho.reasons.1", "give when"),
        ("families:", "familiar:", "", "no section families"),
        ("targets:", "drafters:", "drafters", "given twice"),
    ],
)
def test_what_does_not_belong_together_is_told(tmp_path: Path, old: str, new: str, line: str, words: str) -> None:
    assert CATALOGUE.count(old) == 1
    lines = told(tmp_path, CATALOGUE.replace(old, new))
    assert any(line in each and words in each for each in lines), lines


@pytest.mark.parametrize(
    ("quants", "words"),
    [
        ("[q9_9]", "'q9_9'; they are F16, BF16, Q8_0"),
        ("[q8_0]", "'q8_0'"),
        ('["Q8_0", ""]', "''"),
        ("[[Q8_0]]", "no encoding"),
        ("[]", "is empty"),
        ("[Q8_0, Q8_0]", "twice"),
        ("Q8_0", "must be a list"),
    ],
)
def test_encodings_that_no_run_can_make_are_told_by_their_line(tmp_path: Path, quants: str, words: str) -> None:
    row = CATALOGUE.replace("{family: Gumiho}", f"{{family: Gumiho, quants: {quants}}}")
    (line,) = told(tmp_path, row)
    assert "drafters.tiny/Gumiho-small-1m.quants: " in line
    assert words in line
    (line,) = told(tmp_path, CATALOGUE.replace("    route: refuse\n", f"    route: refuse\n    quants: {quants}\n"))
    assert "families.Gumiho.quants: " in line


def test_encodings_that_a_run_makes_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.yaml"
    path.write_text(CATALOGUE.replace("{family: Gumiho}", "{family: Gumiho, quants: [Q8_0, Q4_K_M]}"))
    assert load_catalogue(path).drafters["tiny/Gumiho-small-1m"].quants == ("Q8_0", "Q4_K_M")


SIGN, ROW = "{spd_type: pard2}", "{family: Gumiho}"


@pytest.mark.parametrize(
    ("old", "new", "told_line"),
    [
        (f"- config: {SIGN}", "- {}", "families.PARD-2.signs.0: is empty, so that every repository would show it"),
        (f"- config: {SIGN}", "-", "families.PARD-2.signs.0: must be a mapping of keys"),
        (SIGN, '{"": pard2}', "families.PARD-2.signs.0: config has an empty place"),
        (SIGN, "{spd_type: []}", "families.PARD-2.signs.0: config allows no text at spd_type"),
        ('["*.bin"]', '[""]', "families.Gumiho.signs.0.files.0: is empty"),
        ("[tiny/PARD2-*]", "[]", "families.PARD-2.names: is empty; it needs one at least"),
        ("[tiny/PARD2-*]", "[tiny/]", "families.PARD-2.names.0: must be author/pattern"),
        ("expected: one flat chain of drafts", "expected: x", "expected: must be a sentence, of 10 characters"),
        (ROW, "Gumiho", "drafters.tiny/Gumiho-small-1m: must be a mapping of keys"),
        (ROW, "[]", "drafters.tiny/Gumiho-small-1m: must be a mapping of keys"),
        (ROW, "{family: {a: b}}", "drafters.tiny/Gumiho-small-1m.family: must be text"),
        (ROW, '{licence: ""}', "drafters.tiny/Gumiho-small-1m.licence: is empty"),
        (ROW, "{licence_as: mlt}", "drafters.tiny/Gumiho-small-1m.licence_as: no licence mlt is known here"),
        (
            ROW,
            "{publish_as: tiny/PARD-SmolLM2-1M}",
            "drafters.tiny/Gumiho-small-1m.publish_as: tiny/PARD-SmolLM2-1M is published as tiny/PARD-SmolLM2-1M too",
        ),
    ],
)
def test_what_decides_nothing_or_cannot_be_meant_is_told(tmp_path: Path, old: str, new: str, told_line: str) -> None:
    assert CATALOGUE.count(old) == 1
    (line,) = told(tmp_path, CATALOGUE.replace(old, new))
    assert told_line in line


def test_names_that_are_exchanged_and_a_licence_that_is_argued_for_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.yaml"
    text = CATALOGUE.replace(
        ROW, "{publish_as: tiny/PARD-SmolLM2-1M, licence_as: ours, licence_statement: it is our own work}"
    )
    path.write_text(text.replace("    family: PARD\n", "    publish_as: tiny/Other\n"))
    assert load_catalogue(path).drafters["tiny/Gumiho-small-1m"].licence_as == "ours"


def test_a_key_that_is_given_twice_hides_nothing(tmp_path: Path) -> None:
    lines = told(tmp_path, CATALOGUE.replace(ROW, "{note: a, note: b, famly: Gumiho}"))
    assert [line.partition(", ")[2] for line in lines] == [
        "drafters.tiny/Gumiho-small-1m.famly: is no key here",
        "drafters.tiny/Gumiho-small-1m.note: given twice",
    ]


def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    for text in ("- a\n", "a", "", "a: [\n"):
        path = tmp_path / "catalogue.yaml"
        path.write_text(text)
        with pytest.raises(BadConfiguration) as caught:
            load_catalogue(path)
        assert caught.value.code == "catalogue.file"


def test_a_row_with_nothing_behind_it_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.yaml"
    path.write_text(CATALOGUE.replace("targets:", "  acme/x:\ntargets:"))
    catalogue = load_catalogue(path)
    assert catalogue.drafters["acme/x"].family is None
    assert catalogue.authors == ("acme", "fast", "tiny")


def test_the_rules_digest_changes_with_the_rules_and_not_with_the_rows(tmp_path: Path) -> None:
    digests = []
    for text in (CATALOGUE, CATALOGUE.replace("{family: Gumiho}", "{}"), CATALOGUE.replace("spd_type: pard2", "a: b")):
        path = tmp_path / "catalogue.yaml"
        path.write_text(text)
        digests.append(load_catalogue(path).rules_digest)
    assert digests[0] == digests[1] != digests[2]

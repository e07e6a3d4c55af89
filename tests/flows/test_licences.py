"""The texts and notices that travel along: from the source, the operator or the donor, and from nowhere else."""

from pathlib import Path
from typing import Any

import pytest

from draftmill.licences.lineage import Start, trace
from draftmill.outcome import Refused
from flows.licences import Terms, terms_of_order
from flows.order import Order

TITLES = {id: f"LLAMA {id.removeprefix('llama')} COMMUNITY LICENSE AGREEMENT" for id in ("llama3.1", "llama3.2")}
MODELS = ["Llama-PARD-3.2-1B-v1.0-F16.gguf"]


def listing(repo: str, folder: Path, licence: str | None = "mit") -> dict[str, Any]:
    files = [{"path": path.name} for path in sorted(folder.iterdir())]
    return {"repo": repo, "licence": licence, "base_models": [], "files": files}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def terms(model: Path, *targets: str, donor: Path | None = None, models: list[str] = MODELS, **order: Any) -> Terms:
    """Of a draft that was made from Llama 3.2 and trained for `targets`; its card says MIT."""
    given = Order.model_validate({"ref": "amd/PARD-Llama-3.2-1B", "work": model.parent / "work", **order})
    starts = [Start("meta-llama/Llama-3.2-1B", "base", "the catalogue")]
    starts += [Start(name, "target", "the catalogue") for name in targets]
    borrowed = (listing("meta-llama/Llama-3.2-1B", donor, "llama3.2"), donor) if donor else None
    return terms_of_order(given, listing("amd/PARD-Llama-3.2-1B", model), trace(starts), model, models, borrowed)


def text(folder: Path, name: str, id: str) -> Path:
    path = folder / id / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{TITLES[id]}\nterms\n")
    return path


def test_an_operator_gives_the_text_once_and_the_notice_is_written(model: Path, tmp_path: Path) -> None:
    policy = tmp_path / "USE_POLICY.md"
    policy.write_text("policy")
    texts = {"llama3.2": [text(tmp_path, "LICENSE.txt", "llama3.2"), policy], "llama3.1": [tmp_path / "nowhere"]}
    found = terms(model, licence_texts=texts)
    assert sorted(found.files) == ["LICENSE-llama3.2.txt", "NOTICE", "USE_POLICY-llama3.2.md"]
    # Word for word what section 1.b.iii of the agreement asks for.
    assert found.files["NOTICE"].read_text() == (
        "Llama 3.2 is licensed under the Llama 3.2 Community License, Copyright © Meta Platforms, Inc. "
        "All Rights Reserved.\n"
    )
    assert found.notices == ("Built with Llama",)
    assert found.licence.model_dump() == {"id": "MIT", "text": None, "statement": None}
    (obligation,) = found.obligations
    assert obligation.model_dump() == {
        "licence": "llama3.2",
        "because_of": ("meta-llama/Llama-3.2-1B",),
        "agreement": "LICENSE-llama3.2.txt",
        "notice": "NOTICE",
        "display": "Built with Llama",
        "name_begins": "Llama",
    }


def test_two_llamas_bring_two_texts_and_one_notice_with_two_sentences(model: Path, tmp_path: Path) -> None:
    texts = {id: [text(tmp_path, "LICENSE", id)] for id in TITLES}
    found = terms(model, "meta-llama/Llama-3.1-8B-Instruct", licence_texts=texts)
    assert sorted(found.files) == ["LICENSE-llama3.1.txt", "LICENSE-llama3.2.txt", "NOTICE"]
    lines = found.files["NOTICE"].read_text().splitlines()
    assert [line[:9] for line in lines] == ["Llama 3.2", "Llama 3.1"]
    assert [each.licence for each in found.obligations] == ["llama3.2", "llama3.1"]


def test_what_the_repository_carries_counts_and_is_not_written_over(model: Path, tmp_path: Path) -> None:
    (model / "LICENSE").write_text(f"MIT License\n\n{TITLES['llama3.2']}")
    (model / "NOTICE").write_text("ours")
    found = terms(model)
    assert sorted(found.files) == ["LICENSE", "NOTICE", "NOTICE-llama3.2"]
    assert found.files["NOTICE"].read_text() == "ours"
    assert found.obligations[0].notice == "NOTICE-llama3.2"


def test_the_donors_own_text_serves_for_the_donors_licence(model: Path, tmp_path: Path) -> None:
    donor = text(tmp_path, "LICENSE.txt", "llama3.2").parent
    assert sorted(terms(model, donor=donor).files) == ["LICENSE-llama3.2.txt", "NOTICE"]
    (donor / "LICENSE.txt").write_text("Apache License")
    with pytest.raises(Refused) as refused:
        terms(model, donor=donor)
    assert refused.value.code == "store.agreement_missing"


def test_no_text_is_invented_and_everything_that_lacks_is_told(model: Path) -> None:
    with pytest.raises(Refused) as refused:
        terms(model, "meta-llama/Llama-3.1-8B-Instruct", models=["PARD-3.2-1B-v1.0-F16.gguf"])
    assert [(refusal.code, refusal.where) for refusal in refused.value.refusals] == [
        ("store.agreement_missing", "llama3.2"),
        ("store.name_rule", "PARD-3.2-1B-v1.0-F16.gguf"),
        ("store.agreement_missing", "llama3.1"),
        ("store.name_rule", "PARD-3.2-1B-v1.0-F16.gguf"),
    ]


def test_the_text_of_another_llama_is_not_the_text(model: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        terms(model, licence_texts={"llama3.2": [text(tmp_path, "LICENSE", "llama3.1")]})
    assert [refusal.code for refusal in refused.value.refusals] == ["store.agreement_missing"]


def test_a_statement_is_kept_with_the_lineage_that_it_answers_for(model: Path) -> None:
    found = terms(model, licence_statement="an agreement with Meta", models=["PARD.gguf"])
    assert (found.obligations, found.notices, found.files) == ((), (), {})
    assert [ancestor.licence for ancestor in found.lineage] == ["llama3.2"]


def test_the_text_of_its_own_licence_is_the_sources_and_no_ancestors(model: Path, tmp_path: Path) -> None:
    llama = text(tmp_path, "LICENSE", "llama3.2")
    (model / "NOTICE").write_text("Ours.")
    assert terms(model, licence_texts={"llama3.2": [llama]}).licence.text is None
    (model / "LICENSE.txt").write_text("MIT License")
    assert terms(model, licence_texts={"llama3.2": [llama]}).licence.text == "LICENSE.txt"
    (model / "LICENSE.txt").write_text(TITLES["llama3.2"])
    found = terms(model)
    assert (found.licence.text, found.obligations[0].agreement) == (None, "LICENSE.txt")
    assert terms(model, licence="llama3.2", licence_statement="theirs").licence.text == "LICENSE.txt"

"""What a manifest says an artifact can do."""

from draftmill.pard.capabilities import capabilities
from draftmill.pard.config import Pard

PARD2 = Pard("PARD-2", 151670, 1024, (-1, -8, -16, -24), 16384, 0.02, False)


def test_an_ordinary_draft_drafts_token_by_token_only() -> None:
    statement = capabilities(None, warp_carried=False)
    assert (statement["family"], list(statement["modes"])) == (None, ["autoregressive"])


def test_parallel_drafting_needs_the_mask_and_not_the_projector() -> None:
    modes = capabilities(Pard("PARD", 151665, 896), warp_carried=False)["modes"]
    assert list(modes) == ["autoregressive", "parallel"]
    assert modes["autoregressive"]["works"] == "as is"
    assert modes["parallel"]["works"] == "with"
    assert "pard_token 151665" in modes["parallel"]["needs"][0]
    assert "warp" not in str(modes)


def test_the_target_dependent_mode_needs_the_projector() -> None:
    statement = capabilities(PARD2, warp_carried=True)
    mode = statement["modes"]["target-dependent"]
    assert (mode["works"], mode["needs"][0]) == ("with", "warp_model.bin")
    assert "[-1, -8, -16, -24]" in mode["needs"][1]
    assert "published beside this file" in mode["sentence"]
    assert statement["projector"] == {"target_proj.weight": [1024, 16384]}
    assert statement["target_hidden"] == 4096


def test_without_the_projector_the_mode_does_not_work_and_the_others_do() -> None:
    modes = capabilities(PARD2, warp_carried=False)["modes"]
    assert [mode["works"] for mode in modes.values()] == ["as is", "with", "no"]
    assert "not in the repository" in modes["target-dependent"]["sentence"]

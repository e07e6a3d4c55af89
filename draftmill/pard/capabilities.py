"""What an artifact made from a PARD drafter can and cannot do, in the words a manifest carries.

The conversion keeps an ordinary causal model. Multi-mask (parallel) drafting needs only the mask id and a loop that
feeds it; the target-dependent mode of PARD-2 needs the projector of warp_model.bin too, which no converter reads.
"""

from typing import Any

from draftmill.pard.config import Pard

WARP_FILE = "warp_model.bin"


def capabilities(pard: Pard | None, *, warp_carried: bool) -> dict[str, Any]:
    """The manifest's statement. `warp_carried`: warp_model.bin is published beside the GGUF.

    Each mode: works ("as is", "with the named things" or "no"), needs (what beyond the GGUF), and one sentence.
    """
    plain = {
        "works": "as is",
        "needs": [],
        "sentence": "Drafts token by token like any causal draft model, for example as llama.cpp's draft-simple.",
    }
    if pard is None:
        return {"family": None, "modes": {"autoregressive": plain}}
    modes: dict[str, Any] = {
        "autoregressive": plain,
        "parallel": {
            "works": "with",
            "needs": [f"a draft loop that appends K-1 copies of pard_token {pard.mask}"],
            "sentence": f"Drafts K tokens in one pass only in an engine that feeds pard_token {pard.mask}; "
            "the file keeps the id as a key, and llama.cpp does not read it.",
        },
    }
    if pard.generation == "PARD-2":
        layers = list(pard.target_layers or ())
        modes["target-dependent"] = {
            "works": "with" if warp_carried else "no",
            "needs": [WARP_FILE, f"hidden states of target layers {layers}, in this order"],
            "sentence": f"Needs {WARP_FILE} ("
            + ("published beside this file" if warp_carried else "not in the repository at this commit")
            + ") and the target's hidden states; without them it drafts target-independently.",
        }
    statement: dict[str, Any] = {"family": pard.generation, "pard_token": pard.mask, "modes": modes}
    if pard.projector_shapes:
        statement["projector"] = {name: list(shape) for name, shape in pard.projector_shapes.items()}
        statement["target_hidden"] = pard.target_hidden
    return statement

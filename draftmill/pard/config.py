"""PARD as config.json declares it.

Rule: an integer `pard_token` inside the vocabulary together with `spd_type` "pard" or "pard2" is a PARD drafter;
`pard2` true or `spd_type` "pard2" makes it PARD-2, which then has to list `pard2_target_layers`. The repository's name
decides nothing. Source: AMD-AGI/PARD pard/pard_train.py, pard/pard2_train.py, pard/pard2_infer.py (6f279bf).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from draftmill.outcome import Refusal, Refused

Generation = Literal["PARD", "PARD-2"]
SPD_TYPES = ("pard", "pard2")


@dataclass(frozen=True)
class Pard:
    """mask: the id repeated K-1 times in a round of parallel drafting. The rest is PARD-2's, None for PARD.

    target_layers: hidden states of the target, in the order in which they are concatenated (-1 is after the final
    norm). target_dim: their widths together. scale: factor of the projected feature. proj_bias: whether it has a bias.
    """

    generation: Generation
    mask: int
    hidden: int
    target_layers: tuple[int, ...] | None = None
    target_dim: int | None = None
    scale: float | None = None
    proj_bias: bool | None = None

    @property
    def projector_shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensor -> shape in warp_model.bin: target_proj.weight is [draft hidden, target_dim]. Empty for PARD."""
        if self.target_dim is None:
            return {}
        shapes: dict[str, tuple[int, ...]] = {"target_proj.weight": (self.hidden, self.target_dim)}
        return shapes | ({"target_proj.bias": (self.hidden,)} if self.proj_bias else {})

    @property
    def target_hidden(self) -> int | None:
        """Hidden size of the only targets that the projector fits."""
        if self.target_dim is None or not self.target_layers:
            return None
        return self.target_dim // len(self.target_layers)


def detect(config: Mapping[str, Any]) -> Pard | None:
    """The PARD drafter that the config declares, or None when it declares none.

    Raises Refused with all findings when it declares one that is not whole: pard.token_invalid,
    pard.target_layers_missing, pard.target_dim_invalid, pard.hidden_missing.
    """
    second = config.get("pard2") is True or config.get("spd_type") == "pard2"
    if not second and config.get("spd_type") not in SPD_TYPES:
        return None
    mask, rows, hidden = (_natural(config.get(key)) for key in ("pard_token", "vocab_size", "hidden_size"))
    findings = []
    if mask is None or rows is None or mask >= rows:
        findings.append(
            Refusal(
                "pard.token_invalid",
                "config.json:pard_token",
                config.get("pard_token"),
                f"an integer below vocab_size {config.get('vocab_size')}",
                "A PARD drafter needs the mask id it was trained with; take config.json from the drafter's repository.",
            )
        )
    if not hidden:
        findings.append(
            Refusal(
                "pard.hidden_missing",
                "config.json:hidden_size",
                config.get("hidden_size"),
                "a positive integer",
                "The draft's width is not stated; take config.json from the drafter's repository.",
            )
        )
    layers: Any = config.get("pard2_target_layers")
    dim = _first(config, "pard2_target_dim", "pard_target_dim")
    if second:
        findings += _second_findings(layers, dim)
    if findings:
        raise Refused(*findings)
    assert mask is not None and hidden is not None  # noqa: S101 - else there were findings
    if not second:
        return Pard("PARD", mask, hidden)
    return Pard(
        "PARD-2",
        mask,
        hidden,
        tuple(layers),
        dim,
        _first(config, "pard2_scale", "pard_scale", "feat_scale"),
        _first(config, "pard2_proj_bias", "proj_bias") is True,
    )


def _second_findings(layers: Any, dim: Any) -> list[Refusal]:
    if not isinstance(layers, list) or not layers or any(type(layer) is not int for layer in layers):
        return [
            Refusal(
                "pard.target_layers_missing",
                "config.json:pard2_target_layers",
                layers,
                "a list of layer numbers",
                "A PARD-2 drafter has to say which target layers it reads, in order; ask its publisher for the config.",
            )
        ]
    # Unstated, the width follows from the target's hidden size, which this repository does not say.
    if dim is not None and (not _natural(dim) or dim % len(layers)):
        return [
            Refusal(
                "pard.target_dim_invalid",
                "config.json:pard2_target_dim",
                dim,
                f"a multiple of {len(layers)} (one target hidden size a layer)",
                "The projector's width does not fit the listed layers; take config.json from the drafter's repository.",
            )
        ]
    return []


def _natural(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _first(config: Mapping[str, Any], *keys: str) -> Any:
    """The value of the first key that is there: PARD-2 configs of different ages name the same thing differently."""
    return next((config[key] for key in keys if config.get(key) is not None), None)

"""A DFlash draft as a proposer: each round one pass over a block of masks, given the target's features so far."""

from collections.abc import Sequence

import numpy as np

from draftmill.dflash.config import DraftConfig
from draftmill.dflash.forward import Draft, KvCache
from draftmill.intake.findings import Findings
from draftmill.speculation.proposer import Proposal
from draftmill.speculation.target import Target


def check_target(config: DraftConfig, target: Target, where: str) -> None:
    """Whether a draft can run beside a target at all; that it was trained for it, acceptance tells.

    Raises Refused with every finding: dflash.target_hidden, target_vocabulary, target_mask, target_depth.
    """
    findings = Findings()
    if config.hidden_size != target.hidden_size:
        findings.add(
            "dflash.target_hidden", where, target.hidden_size, config.hidden_size,
            "The target's hidden states have another width than the draft reads: the draft is of another target.",
        )  # fmt: skip
    if config.vocab_size > target.vocabulary:
        findings.add(
            "dflash.target_vocabulary", where, target.vocabulary, f"at least {config.vocab_size}",
            "The draft's vocabulary is larger than the target's embedding table: the draft is of another target.",
        )  # fmt: skip
    if config.mask_token_id >= target.vocabulary:
        findings.add(
            "dflash.target_mask", where, config.mask_token_id, f"below {target.vocabulary}",
            "The mask token has no row in the target's embedding table: the draft is of another target.",
        )  # fmt: skip
    if config.num_target_layers is not None and config.num_target_layers != target.layers:
        findings.add(
            "dflash.target_depth", where, target.layers, config.num_target_layers,
            "The target has another number of layers than the draft was trained for: its taps are other layers.",
        )  # fmt: skip
    findings.raise_if_any()


class DFlashProposer:
    """n_max: block_size - 1 drafts, since the anchor's own row predicts nothing."""

    def __init__(self, draft: Draft, target: Target) -> None:
        self._draft = draft
        self._target = target
        self._cache: KvCache
        self.n_max = draft.config.block_size - 1
        self._masks = [draft.config.mask_token_id] * self.n_max

    def begin(self, tokens: Sequence[int], features: np.ndarray) -> None:
        self._cache = self._draft.cache()
        self._cache.extend(features)

    def propose(self, anchor: int) -> Proposal:
        block = self._target.embed([anchor, *self._masks])
        hidden = self._cache.forward_cached(block)[1:]
        return Proposal.flat(self._draft.walk(hidden, self._target.head(hidden), anchor).tolist())

    def commit(self, tokens: Sequence[int], features: np.ndarray) -> None:
        self._cache.extend(features)

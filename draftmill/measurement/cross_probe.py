"""How near the own target and draft were to saying something else at one place of a text."""

from collections.abc import Sequence

import numpy as np

from draftmill.dflash.forward import Draft, WindowRule
from draftmill.measurement.cross_compare import Window
from draftmill.measurement.lossless import first_difference
from draftmill.measurement.subject import Encoded
from draftmill.speculation.target import Target


class OwnProbe:
    """A `cross_compare.Probe` of an opened target and draft; every place is computed anew, in one pass over its text.

    The draft's own window rule is that of the own loop.
    """

    def __init__(self, target: Target, draft: Draft) -> None:
        self._target = target
        self._draft = draft

    def target_gap(self, prompt: Encoded, tokens: Sequence[int]) -> float:
        second, best = np.sort(self._target.prefill([*prompt.tokens, *tokens]).logits[-1])[-2:]
        return float(best - second)

    def draft_gap(self, prompt: Encoded, tokens: Sequence[int], row: int, wanted: int) -> float:
        hidden, logits, drafts = self._round(self._draft, prompt, tokens)
        previous = int(drafts[row - 1]) if row else tokens[-1]
        scores = self._draft.scores(hidden[row], logits[row], previous)
        best = int(drafts[row])
        rival = scores[wanted] if wanted != best else np.partition(scores, -2)[-2]
        # What is no candidate has no score: the gap is then to the last candidate, and more than that.
        rival = rival if np.isfinite(rival) else scores[np.isfinite(scores)].min()
        return float(scores[best] - rival)

    def window(self, prompt: Encoded, tokens: Sequence[int], text: Sequence[int], rule: str) -> Window:
        config = self._draft.config
        context = len(prompt.tokens) + len(tokens) - 1
        window = config.sliding_window
        inside = window is None or context + config.block_size <= window
        if inside or rule == self._draft.window_rule:
            return Window(context, window, None)
        other = Draft(self._draft.weights, window_rule=WindowRule(rule))
        drafts = self._round(other, prompt, tokens)[2].tolist()
        accepted = first_difference(drafts, list(text[: len(drafts)]))
        return Window(context, window, len(drafts) if accepted is None else accepted)

    def _round(self, draft: Draft, prompt: Encoded, tokens: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Hidden rows and logits of the rows that predict, and what they draft, behind these tokens."""
        anchor, masks = tokens[-1], [draft.config.mask_token_id] * (draft.config.block_size - 1)
        cache = draft.cache()
        cache.extend(self._target.prefill([*prompt.tokens, *tokens[:-1]]).features)
        hidden = cache.forward_cached(self._target.embed([anchor, *masks]))[1:]
        logits = self._target.head(hidden)
        return hidden, logits, draft.walk(hidden, logits, anchor)

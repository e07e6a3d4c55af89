"""Whether a target computes a row alike however it is asked: alone, in a batch, behind rows that were taken back.

Some models' code does not go on from its state when a pass has several rows (transformers' Mamba 1), or counts
positions from 0 in every pass. The loop would then judge drafts by garbage, and both of its texts would agree in it. So
the last row is held against one pass over everything, which needs no state, before anything is measured.
"""

from collections.abc import Sequence

import numpy as np

from draftmill.outcome import Refusal, Refused
from draftmill.speculation.target import Target, chain

TOLERANCE = 0.1
"""RMS of the difference of two rows of logits, over their spread. Rounding gives 1e-5 (float32) to 3e-2 (bfloat16);
a state that is lost gives more than 1."""


def check_rows(target: Target, tokens: Sequence[int], width: int, where: str) -> None:
    """tokens: a text of the target, repeated where it is too short; width: rows of a verify pass. The state is lost.

    Raises Refused target.rows_differ.
    """
    text = list(tokens)
    while len(text) < width + 4:
        text += tokens
    text = text[-(width + 16) :]
    expected = target.prefill(text).logits[-1]
    found = {}
    target.prefill(text[:-1])
    found["alone"] = target.verify(text[-1:], chain(1)).logits[-1]
    target.prefill(text[:-width])
    found[f"as the last of {width}"] = target.verify(text[-width:], chain(width)).logits[-1]
    target.commit([0])
    found["behind rows that were taken back"] = target.verify(text[1 - width :], chain(width - 1)).logits[-1]
    for how, logits in found.items():
        apart = float(np.sqrt(np.mean(np.square(logits - expected))) / (np.std(expected) or 1))
        if not apart <= TOLERANCE:
            raise Refused(
                Refusal(
                    "target.rows_differ",
                    where,
                    round(apart, 4),
                    TOLERANCE,
                    f"A row computed {how} differs from the same row of one pass over the text: this model's code does "
                    "not go on from its state, so nothing could be judged. Measure with another engine.",
                )
            )

"""What the runtime does not look at when it pairs two vocabularies, and a reader of the verdict should know."""

from typing import Any

from draftmill.tokenizers.identity import first_difference
from draftmill.tokenizers.vocabulary import Vocabulary

_FACETS = {"merges": "merges", "scores": "scores", "token_types": "token types"}
_SHOWN = 120
"""Characters of a text from a file; nothing bounds it there but the header's size."""


def unheeded(target: Vocabulary, draft: Vocabulary, first_compared: int) -> list[str]:
    """One sentence each: ids below `first_compared`, the pre-tokenizer, merges, scores, token types.

    What only one side states is no difference.
    """
    ignored = "which the runtime ignores"
    remarks = [
        f"id {token} differs, {ignored}: target {shown(target.text(token))!r}, draft {shown(draft.text(token))!r}"
        for token in range(min(first_compared, target.size, draft.size))
        if target.text(token) != draft.text(token)
    ]
    if None not in (target.pre, draft.pre) and target.pre != draft.pre:
        remarks.append(f"pre-tokenizers differ, {ignored}: target {shown(target.pre)}, draft {shown(draft.pre)}")
    for facet, name in _FACETS.items():
        if facet in target.stated and facet in draft.stated and target.digests[facet] != draft.digests[facet]:
            first = first_difference(facet, target.facets[facet], draft.facets[facet])
            ours, theirs = (value if value is not None else "nothing" for value in (first.left, first.right))
            remarks.append(
                f"{name} differ, {ignored}: at {first.where} target {shown(ours)!r}, draft {shown(theirs)!r}"
            )
    return remarks


def shown(value: Any) -> Any:
    """A text cut to a length that a person reads; anything else as it is."""
    return value if not isinstance(value, str) or len(value) <= _SHOWN else value[: _SHOWN - 3] + "..."

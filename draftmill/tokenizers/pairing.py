"""May a draft and a target speculate together? llama.cpp's own rule, asked before any server starts.

Source: common_speculative_are_compatible in llama.cpp's common/speculative.cpp (as of mid 2026), defaults from
src/llama-vocab.cpp. The server says a failed check on debug level only and then serves the target alone, healthy.
"""

from dataclasses import dataclass
from typing import Any, Literal

from draftmill.outcome import Refusal
from draftmill.tokenizers.pairing_remarks import shown, unheeded
from draftmill.tokenizers.vocabulary import Vocabulary

MAX_SIZE_DIFFERENCE = 128
FIRST_COMPARED = 5
"""Ids below are never compared by the runtime."""

_DEFAULT_IDS = {
    "BPE": {"bos": 11, "eos": 11},
    "SPM": {"bos": 1, "eos": 2},
    "WPM": {"bos": 101},
    "UGM": {"eos": 1},
}
_BOS_KINDS = ("SPM", "WPM")
_EOS_KINDS = ("UGM",)
_BOS_PRE = {
    "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano",
    "tekken", "chameleon",
}  # fmt: skip
"""BPE pre-tokenizers under which the runtime adds a bos when the file is silent."""

Verdict = Literal["compatible", "compatible with remarks", "refused"]


@dataclass(frozen=True)
class Pairing:
    """refusals: the rules that fail; remarks: what the runtime does not look at, and a reader should know."""

    refusals: tuple[Refusal, ...]
    remarks: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        if self.refusals:
            return "refused"
        return "compatible with remarks" if self.remarks else "compatible"

    @property
    def first_difference(self) -> str | None:
        """In one line: the first rule that fails, else the first remark."""
        for refusal in self.refusals:
            return f"{refusal.where}: target {refusal.expected!r}, draft {refusal.measured!r}"
        return next(iter(self.remarks), None)


@dataclass(frozen=True)
class Ruled:
    """What the rule looks at beside the texts. `assumed`: members that the file does not state, so that the runtime's
    default stands in for them."""

    kind: str
    add_bos: bool
    bos: int | None
    add_eos: bool
    eos: int | None
    size: int
    assumed: tuple[str, ...]


def ruled(vocabulary: Vocabulary) -> Ruled:
    kind, ids, defaults = vocabulary.kind, vocabulary.ids, _DEFAULT_IDS.get(vocabulary.kind, {})
    add_bos, add_eos = vocabulary.add_bos, vocabulary.add_eos
    adds_bos = kind in _BOS_KINDS or vocabulary.pre in _BOS_PRE
    silent = {"add_bos": add_bos is None, "bos": "bos" not in ids, "add_eos": add_eos is None, "eos": "eos" not in ids}
    return Ruled(
        kind=kind,
        add_bos=adds_bos if add_bos is None else add_bos,
        bos=ids.get("bos", defaults.get("bos")),
        add_eos=kind in _EOS_KINDS if add_eos is None else add_eos,
        eos=ids.get("eos", defaults.get("eos")),
        size=vocabulary.size,
        assumed=tuple(name for name, is_silent in silent.items() if is_silent),
    )


def pair(target: Vocabulary, draft: Vocabulary) -> Pairing:
    """Judges two vocabularies as the runtime would judge their GGUF files.

    A tokenizer.json stands for the GGUF made from it: give it its embedding rows first (`Vocabulary.padded`), or
    read it with `draftmill.tokenizers.sources`.
    """
    refusals: list[Refusal] = []
    remarks: list[str] = []
    rules = ruled(target), ruled(draft)

    def refuse(code: str, where: str, measured: Any, expected: Any, sentence: str) -> None:
        refusals.append(Refusal(f"tokenizer.{code}", where, measured, expected, sentence))

    if target.kind != draft.kind:
        refuse(
            "pair_kind",
            "vocabulary type",
            draft.kind,
            target.kind,
            "The two tokenizers work differently; take a draft made for this target's family.",
        )
    for side, vocabulary in (("target", target), ("draft", draft)):
        if vocabulary.add_bos is None and vocabulary.kind == "BPE" and vocabulary.pre is None:
            remarks.append(f"the {side} does not say whether it adds a bos; taken as no, its pre-tokenizer decides")
    for role in ("bos", "eos"):
        adds = [getattr(rule, f"add_{role}") for rule in rules]
        id_of = [getattr(rule, role) for rule in rules]
        if adds[0] != adds[1]:
            refuse(
                f"pair_add_{role}",
                f"add_{role}_token",
                adds[1],
                adds[0],
                f"One of the two adds a {role} token and the other does not; use the target's own tokenizer.",
            )
        elif adds[0] and id_of[0] != id_of[1]:
            refuse(
                f"pair_{role}",
                f"{role}_token_id",
                id_of[1],
                id_of[0],
                f"Both add a {role} token, but not the same one; use the target's own tokenizer.",
            )
        elif id_of[0] != id_of[1] and not any(role in rule.assumed for rule in rules):
            remarks.append(f"{role} ids differ, which the runtime ignores: target {id_of[0]}, draft {id_of[1]}")
    if abs(target.size - draft.size) > MAX_SIZE_DIFFERENCE:
        refuse(
            "pair_size",
            "token count",
            draft.size,
            f"{target.size} +- {MAX_SIZE_DIFFERENCE}",
            "The token counts differ by more than padding; take a draft made for this target's family.",
        )
    elif target.size != draft.size:
        remarks.append(f"token counts differ within the allowance: target {target.size}, draft {draft.size}")
    compared = [token for token in different_texts(target, draft) if token >= FIRST_COMPARED]
    if compared:
        first = compared[0]
        refuse(
            "pair_text",
            f"id {first}",
            shown(draft.text(first)),
            shown(target.text(first)),
            f"{len(compared)} ids have another text, {first} the first; use the target's own tokenizer for the draft.",
        )
    return Pairing(tuple(refusals), (*remarks, *unheeded(target, draft, FIRST_COMPARED)))


def different_texts(target: Vocabulary, draft: Vocabulary) -> list[int]:
    """The ids that both have and whose texts differ, padding included."""
    shared = range(min(target.size, draft.size))
    return [token for token in shared if target.text(token) != draft.text(token)]

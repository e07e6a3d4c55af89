"""Does this tokenizer fit that model? The checks between config.json, the embedding and a vocabulary.

Each check returns its findings; none assumes that equal sizes mean equal tokenizers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from draftmill.outcome import Refusal
from draftmill.tokenizers.families import Declared
from draftmill.tokenizers.huggingface import FLAGS, token_text
from draftmill.tokenizers.vocabulary import Vocabulary, is_reserved_slot


@dataclass
class Evidence:
    """What was looked at, in order: each check with measured and expected; refusals for those that failed; remarks."""

    checks: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def passed(self, check: str, measured: Any, expected: Any) -> None:
        self.checks.append({"check": check, "passed": True, "measured": measured, "expected": expected})

    def failed(self, check: str, where: str, measured: Any, expected: Any, sentence: str) -> None:
        self.checks.append({"check": check, "passed": False, "measured": measured, "expected": expected})
        self.refusals.append(Refusal(f"tokenizer.{check}", where, measured, expected, sentence))

    def judge(self, check: str, where: str, measured: Any, expected: Any, sentence: str, *, ok: bool) -> None:
        if ok:
            self.passed(check, measured, expected)
        else:
            self.failed(check, where, measured, expected, sentence)


def check_rows(evidence: Evidence, vocab_size: int, embedding: int, head: int | None, vocabulary: Vocabulary) -> None:
    """Embedding and head have vocab_size rows, and the highest id is inside; rows above it are padding."""
    evidence.judge(
        "embedding_rows",
        "config.json:vocab_size",
        embedding,
        vocab_size,
        f"The embedding has {embedding} rows and config.json says {vocab_size}; the repository is inconsistent.",
        ok=embedding == vocab_size,
    )
    if head is not None:
        evidence.judge(
            "head_rows",
            "lm_head.weight",
            head,
            vocab_size,
            f"The output head has {head} rows and config.json says {vocab_size}: a reduced or foreign vocabulary.",
            ok=head == vocab_size,
        )
    evidence.judge(
        "ids_outside",
        "tokenizer.json",
        vocabulary.highest,
        f"below {embedding}",
        f"The tokenizer's highest id {vocabulary.highest} has no embedding row; it belongs to another model.",
        ok=vocabulary.highest < embedding,
    )


def _role_ids(config: Mapping[str, Any], role: str) -> list[Any]:
    value = config.get(f"{role}_token_id")
    values = value if isinstance(value, list) else [value]
    # -1 is how some configs write "no padding token".
    return [token for token in values if token is not None and not (role == "pad" and token == -1)]


def check_roles(evidence: Evidence, config: Mapping[str, Any], vocabulary: Vocabulary) -> None:
    """bos, eos and pad ids of config.json against the vocabulary.

    Refused: an id that is no token; a bos or eos that is plain text or a reserved slot there (another version of the
    tokenizer); a bos that is the vocabulary's eos, or the other way round. Other ids than the tokenizer's own are
    remarks: base and instruct models of one family differ so, and the converter takes the tokenizer's.
    """
    said = {role: _role_ids(config, role) for role in ("bos", "eos", "pad")}
    for role, tokens in said.items():
        for token in tokens:
            _check_role(evidence, role, token, said, vocabulary)
        own = vocabulary.ids.get(role)
        if own is not None and tokens and own not in tokens:
            evidence.remarks.append(
                f"{role}: config.json says {tokens}, the tokenizer {own} ({vocabulary.texts[own]!r}); "
                "the converted file carries the tokenizer's"
            )
    for role, text in vocabulary.unresolved.items():
        if role in ("bos", "eos"):
            evidence.failed(
                f"{role}_unresolved",
                f"tokenizer_config.json:{role}_token",
                text,
                "a token of tokenizer.json",
                f"The {role} token {text!r} has no id; the tokenizer's files do not belong together.",
            )
        else:
            evidence.remarks.append(f"{role}: the token {text!r} of tokenizer_config.json has no id and is left out")


def _check_role(
    evidence: Evidence, role: str, token: Any, said: Mapping[str, list[Any]], vocabulary: Vocabulary
) -> None:
    where = f"config.json:{role}_token_id"
    text = vocabulary.texts.get(token) if type(token) is int else None
    other = {"bos": "eos", "eos": "bos"}.get(role)
    taken = other is not None and vocabulary.ids.get(other) == token and vocabulary.ids.get(role) not in (None, token)
    if text is None:
        evidence.failed(
            f"{role}_absent",
            where,
            token,
            f"a token of the tokenizer (0..{vocabulary.highest})",
            f"The config's {role} id {token} is no token here; this is another model's tokenizer.",
        )
    elif role == "pad" or vocabulary.ids.get(role) == token:
        evidence.passed(role, [token, text], f"a token fit for {role}")
    elif is_reserved_slot(text):
        evidence.failed(
            f"{role}_reserved",
            where,
            [token, text],
            f"the family's {role} token",
            f"The config gives id {token} the role {role}, and here it is a spare slot: another version's tokenizer.",
        )
    elif not vocabulary.is_special(token):
        evidence.failed(
            f"{role}_plain",
            where,
            [token, text],
            "a special token",
            f"The config's {role} id {token} is ordinary text {text!r} here; this is another model's tokenizer.",
        )
    elif taken and other and token not in said[other]:
        evidence.failed(
            "roles_swapped",
            where,
            [token, text],
            f"not the tokenizer's {other}",
            f"The config's {role} id {token} is the tokenizer's {other}; this is another model's tokenizer.",
        )
    else:
        evidence.passed(role, [token, text], f"a token fit for {role}")


def check_pard_token(evidence: Evidence, config: Mapping[str, Any], embedding: int, vocabulary: Vocabulary) -> None:
    """`pard_token`, where there is one: an integer inside the embedding that stands for no text.

    The Llama drafters use one of Meta's reserved slots (128020), which is a token by name only: a remark.
    """
    if "pard_token" not in config:
        return
    mask = config["pard_token"]
    where = "config.json:pard_token"
    if type(mask) is not int or not 0 <= mask < embedding:
        evidence.failed(
            "pard_token_invalid",
            where,
            mask,
            f"an integer in 0..{embedding - 1}",
            "The mask id has no embedding row; take config.json from the drafter's repository.",
        )
        return
    text = vocabulary.texts.get(mask)
    if text is not None and is_reserved_slot(text):
        evidence.remarks.append(
            f"pard_token {mask} is the tokenizer's reserved slot {text!r}, which stands for no text"
        )
        text = None
    evidence.judge(
        "pard_token_taken",
        where,
        mask if text is None else [mask, text],
        "an id that is no token",
        f"The mask id {mask} is the token {text!r} here, and masks would read as text: another model's tokenizer.",
        ok=text is None,
    )


def check_family(evidence: Evidence, declared: Declared, vocabulary: Vocabulary, *, borrowed: bool) -> dict[str, Any]:
    """The vocabulary against the family that the draft declares; returns what the proof says about it.

    A borrowed tokenizer of another family is refused. A repository's own one is the authority on itself: a remark.
    """
    names = [family.name for family in declared.families]
    if not names:
        evidence.remarks.append(
            f"nothing here knows the tokenizer family of this model ({declared.evidence}): "
            "that the ids mean the same rests on the donor named, or the repository's own files"
        )
        return {"name": None, "evidence": declared.evidence, "level": "ids only"}
    found = {family.name: family.difference(vocabulary) for family in declared.families}
    match = next((family for family in declared.families if found[family.name] is None), None)
    if match:
        evidence.passed("family", match.name, names)
        if len(names) > 1:
            evidence.remarks.append(
                f"the draft can be of {names} by its config ({declared.evidence}), this is {match.name}"
            )
        return {"name": match.name, "evidence": declared.evidence, "level": match.level(vocabulary)}
    family = declared.families[0]
    difference = found[family.name]
    assert difference is not None  # noqa: S101 - no family matched
    told = f"{difference.where} is {difference.left!r} there and {_named(difference.right)} here"
    if borrowed:
        evidence.failed(
            "family",
            difference.where,
            difference.right,
            difference.left,
            f"The draft is of the {family.name} family ({declared.evidence}) and the donor is not: {told}. "
            f"Use the tokenizer of {family.donor}.",
        )
    else:
        evidence.remarks.append(f"the repository's own tokenizer is not that of {family.name}: {told}")
    return {"name": None, "evidence": declared.evidence, "level": "ids only"}


def _named(text: str | None) -> str:
    return "no token" if text is None else repr(text)


def check_sides(
    evidence: Evidence, documents: Mapping[str, Mapping[str, Any]], vocabulary: Vocabulary, *, owner: str
) -> None:
    """The files beside tokenizer.json say nothing else than it does.

    `documents`: file name -> content of vocab.json, added_tokens.json, tokenizer_config.json, special_tokens_map.json.
    `owner`: whose files these are, for the sentence. Flags that differ are remarks.
    """
    decoder = documents.get("tokenizer_config.json", {}).get("added_tokens_decoder")
    listed = decoder.items() if isinstance(decoder, dict) else []
    entries = [(_id(token), entry if isinstance(entry, dict) else {}) for token, entry in listed]
    said: dict[str, list[tuple[Any, Any]]] = {
        name: list(documents[name].items()) for name in ("vocab.json", "added_tokens.json") if name in documents
    }
    said["tokenizer_config.json"] = [(token_text(entry), token) for token, entry in entries]
    for name, pairs in said.items():
        wrong = next(((text, token) for text, token in pairs if vocabulary.id_of.get(text or "") != token), None)
        evidence.judge(
            "files_disagree",
            name,
            list(wrong) if wrong else len(pairs),
            vocabulary.id_of.get(wrong[0] or "") if wrong else "ids as in tokenizer.json",
            f"{owner}'s {name} and the tokenizer.json give one token two ids; they do not belong together.",
            ok=wrong is None,
        )
    for token, entry in entries:
        added = vocabulary.added.get(token) if token is not None else None
        off = [flag for flag in FLAGS if added and flag in entry and entry[flag] is not getattr(added, flag)]
        if off:
            evidence.remarks.append(f"id {token}: {owner}'s tokenizer_config.json and tokenizer.json differ in {off}")
    for role, entry in documents.get("special_tokens_map.json", {}).items():
        text, token = token_text(entry), vocabulary.ids.get(role.removesuffix("_token"))
        if text is not None and token is not None and vocabulary.texts[token] != text:
            evidence.failed(
                "files_disagree",
                f"special_tokens_map.json:{role}",
                text,
                vocabulary.texts[token],
                f"{owner}'s special_tokens_map.json and tokenizer_config.json name different tokens; mend one of them.",
            )


def _id(key: str) -> int | None:
    return int(key) if key.isascii() and key.isdecimal() and len(key) < 10 else None

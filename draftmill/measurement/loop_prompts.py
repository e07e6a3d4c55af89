"""Prompts as ids of a Hugging Face target: by its own tokenizer, through its chat template where it has one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from draftmill.intake.bounded_json import read_object
from draftmill.intake.config import check_remote_code
from draftmill.intake.findings import Findings
from draftmill.measurement.prompts import Prompt
from draftmill.measurement.subject import Encoded
from draftmill.outcome import Refusal, Refused

_SETTINGS, _LIMIT = "tokenizer_config.json", 16 << 20


def encode(folder: Path, prompts: Sequence[Prompt], form: Literal["auto", "chat", "raw"]) -> tuple[list[Encoded], bool]:
    """The prompts, and whether they went through a template. "auto": where the tokenizer has one.

    Raises Refused: target.tokenizer_unreadable, target.no_template, measurement.prompt_empty, what `check_remote_code`
    refuses.
    """
    tokenizer = _tokenizer(folder)
    templated = bool(getattr(tokenizer, "chat_template", None))
    if form == "chat" and not templated:
        raise _refused(
            "target.no_template", str(folder), None, "a chat template", "The target has none; say --form raw."
        )
    chat = form == "chat" or (form == "auto" and templated)
    encoded = [Encoded(each.name, each.kind, tuple(_ids(tokenizer, each.text, chat))) for each in prompts]
    if empty := [each.name for each in encoded if not each.tokens]:
        raise _refused(
            "measurement.prompt_empty", empty[0], 0, "at least one token", "The prompt has no token of the target's."
        )
    return encoded, chat


def _ids(tokenizer: Any, text: str, chat: bool) -> list[int]:
    if not chat:
        return list(tokenizer(text)["input_ids"])
    said = [{"role": "user", "content": text}]
    return list(tokenizer.apply_chat_template(said, add_generation_prompt=True, return_dict=True)["input_ids"])


def _tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    if (folder / _SETTINGS).is_file():
        findings = Findings()
        check_remote_code(read_object(folder / _SETTINGS, _SETTINGS, _LIMIT), _SETTINGS, findings)
        findings.raise_if_any()
    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers and tokenizers raise what they like on a spoiled file
        raise _refused(
            "target.tokenizer_unreadable", str(folder), str(error).split("\n")[0][:300], "a tokenizer",
            "transformers cannot load the target's tokenizer; take its files from its repository again.",
        ) from error  # fmt: skip


def _refused(code: str, where: str, measured: object, expected: object, sentence: str) -> Refused:
    return Refused(Refusal(code, where, measured, expected, sentence))

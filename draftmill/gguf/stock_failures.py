"""What llama.cpp's converter says when it fails -> what is wrong and what to do.

Its last line depends on the version of transformers, so that what can be checked beforehand is (see `convert_stock`);
the signatures here are those that a check beforehand cannot know.
"""

import re
from collections.abc import Callable, Sequence

from draftmill.outcome import BadConfiguration, InputOutput, MillError, Refusal, Refused, Temporary

_TAIL_LINES, _TAIL_CHARS = 12, 800


def explain(status: int, log: Sequence[str]) -> MillError:
    """The error to raise for a converter that ended with `status` (negative: by that signal) after printing `log`."""
    text = "\n".join(log)
    for pattern, error in _SIGNATURES:
        if match := re.search(pattern, text):
            return error(match)
    tail = " | ".join(log[-_TAIL_LINES:])[-_TAIL_CHARS:]
    if status < 0:
        sentence = (
            f"The converter was ended by signal {-status}; the machine may be short of memory. Last lines: {tail}"
        )
        return Temporary(sentence, code="convert.stock_killed")
    return MillError(f"The converter ended with {status}. Last lines: {tail}", code="convert.stock_failed")


def _refusal(code: str, where: str, expected: str, sentence: str) -> Callable[[re.Match[str]], MillError]:
    def error(match: re.Match[str]) -> MillError:
        measured = match.groups()[0] if match.groups() else match[0]
        return Refused(Refusal(f"convert.{code}", where, measured, expected, sentence))

    return error


def _missing_module(match: re.Match[str]) -> MillError:
    if match[1].partition(".")[0] == "conversion":
        return BadConfiguration(
            "convert_hf_to_gguf.py lacks its package `conversion`, which lies beside it in llama.cpp; name the one in "
            "a whole checkout (--stock-converter).",
            code="convert.stock_unusable",
            where=match[1],
        )
    return BadConfiguration(
        f"The converter's Python lacks the module {match[1]}; give an interpreter that has torch, transformers, "
        "safetensors, sentencepiece and protobuf (--stock-python), or use --converter native.",
        code="convert.stock_unusable",
        where=match[1],
    )


def _no_space(match: re.Match[str]) -> MillError:
    return InputOutput("The disk is full; the converted model needs two bytes a weight.", code="convert.no_space")


_SIGNATURES: tuple[tuple[str, Callable[[re.Match[str]], MillError]], ...] = (
    (r"ModuleNotFoundError: No module named '([^']+)'", _missing_module),
    (r"No space left on device", _no_space),
    (
        r"chkhsh:\s+([0-9a-f]{64})|BPE pre-tokenizer was not recognized",
        _refusal(
            "pre_tokenizer_unknown",
            "tokenizer.json:pre_tokenizer",
            "a pre-tokenizer that this converter knows",
            "The stock converter does not know this pre-tokenizer: it is edited, or newer than the converter.",
        ),
    ),
    (
        r"Can not map tensor '([^']+)'",
        _refusal(
            "tensor_unknown",
            "weights",
            "tensors of the architecture",
            "The model has a part that the converter has no name for; this checkpoint is not of a plain architecture.",
        ),
    ),
    (
        r"(?:Architecture|Model) '?([^'\s]+)'? (?:is )?not supported",
        _refusal(
            "architecture",
            "config.json:architectures",
            "an architecture that this converter knows",
            "The stock converter does not know this architecture; a newer one may.",
        ),
    ),
    (
        r"Missing or incomplete model files: ([^\n]+)|Mismatch between weight map and model parts",
        _refusal(
            "tensor_missing",
            "model.safetensors.index.json",
            "files and index that agree",
            "Parts of the model are missing; take the whole model from its repository again.",
        ),
    ),
    (
        r"(?:Error: Missing|File not found:) \S*?/(tokenizer\.model)",
        _refusal(
            "tokenizer_missing",
            "tokenizer.model",
            "the file that this architecture's tokenizer is read from",
            "The converter reads this architecture's tokenizer from tokenizer.model, which the folder has not; take it "
            "from the repository.",
        ),
    ),
    (
        r"Model_?(?:file| proto)[^\n]*must be specified|Couldn't instantiate the backend tokenizer"
        r"|expected str, bytes or os.PathLike object, not NoneType",
        _refusal(
            "tokenizer_unreadable",
            "tokenizer files",
            "files that transformers can load",
            "transformers cannot load this tokenizer; take fresh copies of its files, or name a donor.",
        ),
    ),
)

"""A target's vocabulary as llama.cpp's own converter writes it into a draft, for targets whose vocabulary ours does not
write.

The converter gets the target's tokenizer and config.json (`--target-model-dir`), and a draft that has nothing but a
config (`--vocab-only`): the target's own conversion, which some of its classes start with weights alone, never begins.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from draftmill.gguf.merged_folder import vocabulary_folder
from draftmill.gguf.stock_run import TIMEOUT_S, run_stock
from draftmill.gguf.stock_script import StockScript
from draftmill.outcome import Refusal, Refused
from draftmill.progress import Progress, silent
from draftmill.tokenizers.ggml import read_gguf
from draftmill.tokenizers.identity import first_difference
from draftmill.tokenizers.sources import Source, read_source
from draftmill.tokenizers.vocabulary import ROLES, Vocabulary

_DRAFT: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e4,
    "max_position_embeddings": 32,
    "block_size": 2,
    "dflash_config": {"target_layer_ids": [0]},
}
"""The smallest that the converter takes; no mask id, so that the target's own is seen."""


@contextmanager
def stock_vocabulary(
    folder: Path, script: StockScript, *, timeout_s: float = TIMEOUT_S, progress: Progress = silent
) -> Iterator[Path]:
    """Yields a GGUF file without tensors, gone afterwards, of the vocabulary of the target in `folder`.

    What the converter makes of it is held against tokenizer.json: the text of every id, the merges, and the ids that
    have a role. Its token types are its own judgement.
    Raises Refused: convert.vocabulary_differs, what reading either raises; what `run_stock` raises.
    """
    stated = read_source(folder)
    with vocabulary_folder(folder) as target:
        draft, out = target.with_name("draft"), target.with_name("vocabulary.gguf")
        draft.mkdir()
        # Ids without a token are padded up to the draft's own count.
        config = _DRAFT | {"vocab_size": stated.rows or stated.vocabulary.size}
        (draft / "config.json").write_text(json.dumps(config))
        options = ("--vocab-only", "--target-model-dir", str(target))
        run_stock(script, draft, out, *options, timeout_s=timeout_s, progress=progress)
        _check(stated, read_gguf(out), folder.name)
        yield out


def _check(source: Source, written: Vocabulary, where: str) -> None:
    stated = source.vocabulary
    # Added tokens stand either as they are stated or as the converter rewrites them: which, its classes decide.
    rewritten = [
        source.as_gguf(written.size).texts,
        {t: added.text.replace("\u2581", " ") for t, added in stated.added.items()},
    ]
    texts = dict(stated.texts)
    for token in stated.added:
        if written.texts.get(token) in [each[token] for each in rewritten]:
            texts[token] = written.texts[token]
    ours: dict[str, Any] = {"texts": [[t, texts[t]] for t in sorted(texts)], "merges": stated.stated.get("merges")}
    ours |= {role: stated.ids.get(role) for role in ROLES}
    refusals = []
    for facet, expected in ours.items():
        measured = written.facets.get(facet)
        if measured == expected or (facet != "texts" and None in (measured, expected)):
            continue
        difference = first_difference(facet, expected, measured)
        refusals.append(
            Refusal(
                "convert.vocabulary_differs",
                f"{where}/tokenizer.json:{facet}",
                f"llama.cpp's converter writes {difference.right!r} at {difference.where}"[:200],
                f"{difference.left!r}"[:200],
                "The converter reads another vocabulary out of this folder than its tokenizer.json states: either its "
                "other tokenizer files are of another model, or the converter rewrites tokenizers of this kind. Take "
                "all files from one commit of the target's repository; if they are, give a GGUF of the target instead.",
            )
        )
    if refusals:
        raise Refused(*refusals)

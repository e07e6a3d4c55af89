"""The target whose vocabulary a GGUF draft carries: a Hugging Face folder, or the target's own GGUF.

llama.cpp does not compare the two vocabularies of a DFlash pair and sizes the draft's rows of logits by the draft's
own token list, so the list has to be the target's, of the target's length (common/speculative.cpp).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftmill.dflash.config import CONFIG_LIMIT, DraftConfig
from draftmill.dflash.config_places import shown
from draftmill.dflash.gguf_form import keys
from draftmill.dflash.gguf_form.draft import GgufDraft
from draftmill.gguf.header import GGUFHeader, read_header
from draftmill.gguf.hyperparameters import ARCHITECTURES
from draftmill.gguf.vocabulary_keys import add_vocabulary
from draftmill.intake.bounded_json import read_object
from draftmill.intake.text_config import text_config
from draftmill.outcome import Refusal, Refused
from draftmill.tokenizers.ggml import read_gguf

if TYPE_CHECKING:
    from gguf import GGUFWriter

_GROUP = "tokenizer."


@dataclass(frozen=True)
class Target:
    """rows: of the target's embedding. mrope: whether its positions have several axes, as targets that see have.

    hidden: width of its rows; layers: how many it has; None where it does not say.
    architecture: GGUF's name, of a folder. header: of the GGUF that has its vocabulary.
    """

    path: Path
    rows: int
    mrope: bool
    architecture: str = ""
    hidden: int | None = None
    layers: int | None = None
    header: GGUFHeader | None = None

    def check(self, config: DraftConfig, where: str) -> None:
        """Raises Refused dflash.vocabulary_size, target_hidden_size, target_layers: a draft of another target."""
        if self.rows != config.vocab_size:
            raise Refused(
                Refusal(
                    "dflash.vocabulary_size",
                    where,
                    config.vocab_size,
                    self.rows,
                    f"The draft predicts ids of {config.vocab_size} tokens and the target {self.path.name} has "
                    f"{self.rows}; llama.cpp would mix up the rows of their logits. Give the target that the draft "
                    "was trained for.",
                )
            )

        name, deepest = self.path.name, max(config.target_layer_ids)
        if self.hidden not in (None, config.hidden_size):
            raise _refused(
                "target_hidden_size",
                name,
                self.hidden,
                config.hidden_size,
                "The draft reads the target's hidden rows, and this target's have another width. Give the target that "
                "the draft was trained for.",
            )
        if self.layers is not None and deepest >= self.layers:
            raise _refused(
                "target_layers",
                name,
                self.layers,
                f"more than {deepest} layers",
                "The draft reads a layer that this target has not. Give the target that the draft was trained for.",
            )

    def add_vocabulary(self, writer: "GGUFWriter", config: DraftConfig) -> None:
        """Writes the tokenizer's keys into `writer`; the mask's id takes the place of the target's own, or is last.

        Raises Refused: what `draftmill.gguf.vocabulary_keys.add_vocabulary` raises.
        """
        if self.header is None:
            add_vocabulary(writer, self.path, self.architecture, config.vocab_size)
        else:
            for name, value in self.header.fields.items():
                if name.startswith(_GROUP):
                    kind, *inner = self.header.types[name]
                    writer.add_key_value(name, value, kind, inner[0] if inner else None)
        if keys.MASK_TOKEN_ID in writer.kv_data[0]:
            writer.kv_data[0][keys.MASK_TOKEN_ID].value = config.mask_token_id
        else:
            writer.add_mask_token_id(config.mask_token_id)


def own_vocabulary(draft: GgufDraft) -> Target:
    """Of a draft that is a GGUF already: what it carries itself."""
    mrope = bool(any(draft.header.fields.get(keys.ROPE_SECTIONS, ())))
    return Target(draft.path, draft.config.vocab_size, mrope, header=draft.header)


def read_target(path: Path, vocabulary: Path | None = None) -> Target:
    """A target's folder or GGUF file. vocabulary: a GGUF that holds a folder's, as llama.cpp's converter writes it; for
    architectures whose vocabulary the native converter does not write.

    Raises Refused: dflash.target_missing, target_architecture, target_is_draft, target_vocabulary, intake.json_*,
    and of a GGUF what `read_gguf` raises; OSError.
    """
    if not path.is_dir():
        return _read_gguf(path)
    return _read_folder(path, read_header(vocabulary) if vocabulary else None)


def _read_gguf(path: Path) -> Target:
    header = read_header(path)
    architecture = header.fields.get("general.architecture")
    if architecture == keys.ARCHITECTURE:
        raise _refused(
            "target_is_draft", path.name, architecture, "a target's", "This is a draft itself; give the target's GGUF."
        )
    read_gguf(path)
    sections = header.fields.get(f"{architecture}.rope.dimension_sections")
    mrope = isinstance(sections, list) and any(sections)
    hidden, layers, extra = (
        value if type(value := header.fields.get(f"{architecture}.{key}")) is int else None
        for key in ("embedding_length", "block_count", "nextn_predict_layers")
    )
    layers = layers and layers - (extra or 0)  # layers that predict further tokens are no layers of the target's pass
    return Target(path, len(header.fields[keys.TOKENS]), mrope, hidden=hidden, layers=layers, header=header)


def _read_folder(path: Path, vocabulary: GGUFHeader | None) -> Target:
    if not (path / "config.json").is_file():
        raise _refused(
            "target_missing",
            f"{path.name}/config.json",
            "no such file",
            "a target's folder or GGUF",
            "The draft's vocabulary is its target's. Give the target's Hugging Face folder, or its GGUF file.",
        )
    config = read_object(path / "config.json", f"{path.name}/config.json", CONFIG_LIMIT)
    text = text_config(config)
    named = config.get("architectures")
    architecture = ARCHITECTURES.get(named[0]) if isinstance(named, list) and named else None
    if architecture is None and vocabulary is None:
        raise _refused(
            "target_architecture",
            f"{path.name}/config.json:architectures",
            shown(named),
            list(ARCHITECTURES),
            "The native converter writes vocabularies of these architectures only. Have llama.cpp's own write this one "
            "(--converter stock), or give a GGUF of the target instead of the folder.",
        )
    rows = text.get("vocab_size")
    if type(rows) is not int:
        raise _refused(
            "target_vocabulary",
            f"{path.name}/config.json:vocab_size",
            shown(rows),
            "a whole number",
            "How many tokens the target has is not stated; take its config.json from its repository.",
        )
    if vocabulary and (tokens := len(vocabulary.fields[keys.TOKENS])) != rows:
        raise _refused(
            "target_vocabulary",
            f"{path.name}/config.json:vocab_size",
            rows,
            tokens,
            "llama.cpp sizes the draft's logits by its list of tokens, and its converter writes another number of them "
            "for this target than the target has rows. Take config.json and tokenizer from one commit.",
        )
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    hidden, layers = (
        value if type(value := text.get(key)) is int else None for key in ("hidden_size", "num_hidden_layers")
    )
    return Target(
        path, rows, isinstance(rope, dict) and "mrope_section" in rope, architecture or "", hidden, layers, vocabulary
    )


def _refused(code: str, where: str, measured: Any, expected: Any, sentence: str) -> Refused:
    return Refused(Refusal(f"dflash.{code}", where, measured, expected, sentence))

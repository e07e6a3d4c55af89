"""A target of the Gemma 4 kind, small and made up: characters merged by rank, spaces as U+2581, bytes as a fallback."""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|channel>", "<channel|>", "<|turn>")
PIECES = [
    *SPECIAL[:5],
    *(f"<0x{byte:02X}>" for byte in range(256)),
    "▁",
    *map(chr, range(33, 127)),
    *("\n", "\n\n", "th", "the", "▁the"),
]
MERGES = [("t", "h"), ("th", "e"), ("▁", "the"), ("\n", "\n")]
ADDED = [*SPECIAL[5:], "▁▁"]
ROWS = len(PIECES) + len(ADDED)


def write_gemma_target(folder: Path) -> Path:
    """config.json as its repositories have it, and the tokenizer's files; no weights."""
    folder.mkdir()
    model = models.BPE(
        {piece: token for token, piece in enumerate(PIECES)},
        MERGES,
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.add_tokens([AddedToken("▁▁", normalized=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    roles = {f"{role}_token": f"<{role}>" for role in ("bos", "eos", "pad", "unk", "mask")}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GemmaTokenizer"} | roles))
    text = {
        "model_type": "gemma4_text",
        "vocab_size": ROWS,
        "hidden_size": 256,
        "intermediate_size": 128,
        "num_hidden_layers": 12,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "global_head_dim": 64,
        "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 0,
        "sliding_window": 64,
        "layer_types": ["sliding_attention", "full_attention"] * 6,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "full_attention": {"rope_theta": 1e6, "rope_type": "default"},
            "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
        },
        "final_logit_softcapping": 30.0,
    }
    content = {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "text_config": text}
    (folder / "config.json").write_text(json.dumps(content))
    return folder

"""A small random target as a Hugging Face folder, with a tokenizer and a chat template, for a synthetic draft."""

from pathlib import Path

TEMPLATE = "{% for m in messages %}<user>{{ m.content }}{% endfor %}<bot>"
WORDS = [f"w{number}" for number in range(500)]


def write_target(folder: Path, *, hidden_size: int = 256, layers: int = 12, vocabulary: int = 512) -> Path:
    """A LlamaForCausalLM of the shape that `synthetic_config` drafts are for; needs torch and transformers."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=hidden_size, intermediate_size=64, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=256,
        eos_token_id=3, bos_token_id=1, tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    words = {word: place for place, word in enumerate(["<unk>", "<user>", "<bot>", "<end>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("(?=<)|(?<=>)|\\s+", "removed")  # type: ignore[arg-type]
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", unk_token="<unk>")
    fast.add_special_tokens({"additional_special_tokens": ["<user>", "<bot>"]})
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    return folder

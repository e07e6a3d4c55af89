"""transformers' own assisted generation with its own DFlash model beside our loop: the same tokens, the same rounds."""

import numpy as np
import pytest

from draftmill.dflash.forward import Draft, WindowRule
from draftmill.dflash.forward.products import Weights
from draftmill.dflash.proposer import DFlashProposer
from draftmill.speculation.greedy import decode
from tests.dflash.forward.test_transformers_parity import muse
from tests.support.draft_arrays import Arrays, small_config, small_tensors

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers")

from draftmill.speculation.transformers_target import TransformersTarget  # noqa: E402

PROMPT, BUDGET = [3, 17, 5, 41], 40


def target_model():
    torch.manual_seed(1)
    config = transformers.Qwen3Config(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=12, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=256, eos_token_id=None, bos_token_id=None,
        pad_token_id=0, tie_word_embeddings=False,
    )  # fmt: skip
    model = transformers.Qwen3ForCausalLM(config).double()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


@pytest.mark.parametrize("window", [None, 6])
def test_the_loop_and_assisted_generation_agree_token_for_token(window):
    types = ("full_attention",) * 3 if window is None else ("sliding_attention",) * 3
    config = small_config(layer_types=types, sliding_window=window, block_size=6, mask_token_id=4)
    tensors = small_tensors(config)
    model, assistant = target_model(), muse(config, tensors)
    assistant.config.mask_token_id = 4
    drafted = []

    def watch(_module, _inputs, output):
        drafted.append(output.last_hidden_state.shape[1])

    assistant.register_forward_hook(watch)
    ids = torch.tensor([PROMPT])
    generated = model.generate(
        ids, attention_mask=torch.ones_like(ids), assistant_model=assistant, speculation_type="dflash",
        max_new_tokens=BUDGET, do_sample=False,
    )[0, len(PROMPT) :].tolist()  # fmt: skip
    draft = Draft(Weights(Arrays(config, tensors), np.dtype(np.float64)), window_rule=WindowRule.INCLUSIVE)
    target = TransformersTarget(model, config.target_layer_ids)
    found = decode(target, DFlashProposer(draft, target), PROMPT, budget=BUDGET)
    assert list(found.tokens) == generated
    # It drafts as often as the loop does, but not for a last token that needs no draft.
    assert found.trace.passes - len(drafted) in (0, 1)

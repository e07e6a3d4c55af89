"""Generation 1 against transformers' own implementation of it (MuseGlimmerAssistant): it shares no line with ours."""

import numpy as np
import pytest

from draftmill.dflash.forward import Draft, WindowRule
from draftmill.dflash.forward.products import Weights
from draftmill.dflash.forward.rotation import Rotation
from draftmill.dflash.rope import Rope
from tests.support.draft_arrays import Arrays, inputs, small_config, small_tensors

torch = pytest.importorskip("torch", reason="torch is not installed")


def muse(config, tensors):
    """transformers' model in float64 with the draft's weights: fc and hidden_norm have other names there."""
    from transformers import MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel

    model = MuseGlimmerAssistantModel(
        MuseGlimmerAssistantConfig(
            hidden_size=config.hidden_size, intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_hidden_layers, num_attention_heads=config.num_attention_heads,
            num_key_value_heads=config.num_key_value_heads, head_dim=config.head_dim,
            rms_norm_eps=config.rms_norm_eps, layer_types=list(config.layer_types),
            sliding_window=config.sliding_window or 4096, block_size=config.block_size,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope.theta},
            target_layer_ids=list(config.target_layer_ids), attn_implementation="eager",
        )
    ).double()  # fmt: skip
    renamed = {"fc.weight": "encoder.fc.weight", "hidden_norm.weight": "encoder.output_norm_enc.weight"}
    state = {renamed.get(name, name): torch.from_numpy(values) for name, values in tensors.items()}
    model.load_state_dict(state, strict=True)
    return model.eval()


def pass_of(model, features, block):
    from transformers.cache_utils import DFlashCache

    cache = DFlashCache(config=model.config)
    cache.set_previous_accepted_tokens(len(features))
    with torch.no_grad():
        return model(
            noise_embeds=torch.from_numpy(block)[None],
            context_hidden_states=torch.from_numpy(features)[None],
            position_ids=torch.arange(len(features) + len(block))[None],
            cache=cache,
        ).last_hidden_state[0].numpy()  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("window", [None, 64, 6, 4])
def test_the_pass_is_that_of_transformers(seed, window):
    types = ("full_attention",) * 3 if window is None else ("sliding_attention", "full_attention", "sliding_attention")
    config = small_config(layer_types=types, sliding_window=window)
    tensors = small_tensors(config, seed)
    features, block = inputs(config, 11, 8, seed)
    draft = Draft(Weights(Arrays(config, tensors), np.dtype(np.float64)), window_rule=WindowRule.INCLUSIVE)
    expected = pass_of(muse(config, tensors), features, block)
    assert np.abs(draft.forward(features, block) - expected).max() < 1e-5
    if window in (4, 6):
        published = Draft(Weights(Arrays(config, tensors), np.dtype(np.float64)))
        assert np.abs(published.forward(features, block) - expected).max() > 1e-2, "the two window rules differ here"


@pytest.mark.parametrize(
    "scaling",
    [
        {"factor": 4.0, "original_max_position_embeddings": 1024},
        {"factor": 8.0, "original_max_position_embeddings": 2048, "beta_fast": 64, "beta_slow": 2},
        {"factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 0.7},
        {"factor": 4.0, "original_max_position_embeddings": 1024, "attention_factor": 1.5, "truncate": False},
        {"factor": 0.5, "original_max_position_embeddings": 1024},
    ],
)
def test_yarn_is_that_of_transformers(scaling):
    from transformers import Qwen3Config
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = Qwen3Config(
        head_dim=128, max_position_embeddings=int(scaling["original_max_position_embeddings"] * scaling["factor"]),
        rope_parameters={"rope_type": "yarn", "rope_theta": 1e6, **scaling},
    )  # fmt: skip
    frequencies, factor = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")
    ours = Rotation(Rope(1e6, "yarn", scaling), 128, np.dtype(np.float64))
    assert ours.factor == pytest.approx(factor, rel=1e-12)
    assert np.abs(ours.frequencies / frequencies.double().numpy() - 1).max() < 1e-6

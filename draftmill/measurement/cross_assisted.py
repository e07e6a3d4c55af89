"""transformers' own assisted generation with its own DFlash model (MuseGlimmerAssistant) and a generation 1 draft.

It shares no line with the mill's loop: the draft's forward, its cache, the verification and the target's cache are all
transformers'. Its windows are inclusive, its sliding layers never causal, and it scales no embedding.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from draftmill.dflash.config import DraftConfig
from draftmill.dflash.forward.products import Weights
from draftmill.dflash.inventory import expected_tensors
from draftmill.dflash.names import FUSION, HIDDEN_NORM
from draftmill.measurement.cross_record import Route
from draftmill.measurement.record import Accepted, Ran, Texts
from draftmill.measurement.servers.live_process import file_digest
from draftmill.measurement.subject import Encoded
from draftmill.outcome import Refusal, Refused, Unavailable
from draftmill.progress import Progress
from draftmill.speculation.trace import Round, Stop, Trace

NAME = "transformers"
_RENAMED = {FUSION: "encoder.fc.weight", HIDDEN_NORM: "encoder.output_norm_enc.weight"}


def check_assisted(config: DraftConfig, dtype: str) -> None:
    """Raises Refused with all that transformers' DFlash model computes otherwise (cross.assisted)."""
    wrong = [
        (key, found, expected, sentence)
        for key, found, expected, sentence in (
            ("generation", config.generation, 1, "transformers has no DFlash 2"),
            ("is_causal", config.causal and "sliding_attention" in config.layer_types, False,
             "transformers' sliding layers are never causal inside the block"),
            ("input_embedding_scale", config.input_embedding_scale, 1.0, "transformers scales no embedding"),
            ("dtype", dtype, "float32", "it runs target and draft in one dtype, and our draft is float32"),
        )
        if found != expected
    ]  # fmt: skip
    if wrong:
        raise Refused(*(Refusal("cross.assisted", key, found, want, said) for key, found, want, said in wrong))


def assistant_model(weights: Weights) -> Any:
    """transformers' model with a draft's weights, float32. Raises Unavailable where this transformers has none."""
    try:
        from transformers import MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel
    except ImportError as error:
        raise Unavailable(
            f"this transformers has no MuseGlimmerAssistant ({error}): install 5.24 or later.", code="cross.assisted"
        ) from error
    import torch

    config: DraftConfig = weights.source.config
    model = MuseGlimmerAssistantModel(
        MuseGlimmerAssistantConfig(
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            num_key_value_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            rms_norm_eps=config.rms_norm_eps,
            max_position_embeddings=config.max_position_embeddings or 131072,
            layer_types=list(config.layer_types),
            sliding_window=config.sliding_window or 1 << 30,
            block_size=config.block_size,
            mask_token_id=config.mask_token_id,
            rope_parameters={"rope_type": config.rope.type, "rope_theta": config.rope.theta, **config.rope.scaling},
            target_layer_ids=list(config.target_layer_ids),
            attn_implementation="eager",
        )
    )
    state = {
        _RENAMED.get(each.name, each.name): torch.from_numpy(np.array(weights.tensor(each.name), np.float32))
        for each in expected_tensors(config, scalars=False)
    }
    model.load_state_dict(state, strict=True)
    return model.eval()


class _Rounds:
    """A streamer: generate hands it the prompt first, then the tokens of every pass as they become valid."""

    def __init__(self) -> None:
        self.passes: list[list[int]] = []

    def put(self, tokens: Any) -> None:
        self.passes.append(tokens.reshape(-1).tolist())

    def end(self) -> None:
        """Nothing is held back."""


def generate(model: Any, assistant: Any, prompt: Encoded, budget: int) -> tuple[Trace, tuple[int, ...]]:
    """One answer. A round's accepted drafts are cut at the budget and behind the end of the text there.

    Raises Unavailable (cross.assisted) where transformers turns the target down.
    """
    import torch

    drafted: list[int] = []
    streamer = _Rounds()
    n_max = assistant.config.block_size - 1
    # generate looks at the passes in order: how many were there when the assistant ran says in which it did.
    hook = assistant.register_forward_hook(lambda *_: drafted.append(len(streamer.passes)))
    ids = torch.tensor([list(prompt.tokens)], device=model.device)
    try:
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            assistant_model=assistant,
            speculation_type="dflash",
            max_new_tokens=budget,
            do_sample=False,
            streamer=streamer,
        )
    except (ValueError, RuntimeError, NotImplementedError, AttributeError, TypeError) as error:
        raise Unavailable(
            f"transformers' assisted generation does not take this target: {str(error).splitlines()[0][:300]}.",
            code="cross.assisted",
        ) from error
    finally:
        hook.remove()
    _, first, *later = streamer.passes
    tokens = tuple(token for each in (first, *later) for token in each)
    rounds = tuple(
        Round(offered=n_max if 2 + at in drafted else 0, accepted=len(each) - 1) for at, each in enumerate(later)
    )
    stop: Stop = "budget" if len(tokens) >= budget and not _ends(model, tokens) else "eos"
    return Trace(
        prompt=prompt.name, budget=budget, emitted=len(tokens), stop=stop, first_token=True, rounds=rounds
    ), tokens  # fmt: skip


def _ends(model: Any, tokens: Sequence[int]) -> bool:
    stated = model.generation_config.eos_token_id
    return tokens[-1] in ([stated] if isinstance(stated, int) else stated or ())


def run_assisted(
    model: Any, weights: Weights, prompts: Sequence[Encoded], own: Accepted, *, progress: Progress
) -> Route:
    """model: transformers' target. own: the own loop's record, whose folders these are. Raises Refused, Unavailable."""
    budget = own.regime.budget
    check_assisted(weights.source.config, own.loop.dtype if own.loop else "float32")
    assistant = assistant_model(weights).to(model.device)
    answers, texts = [], []
    alone = {text.prompt: text.alone for text in own.texts or ()}
    for done, prompt in enumerate(prompts):
        progress(f"{NAME}: {prompt.name}", done, len(prompts))
        trace, tokens = generate(model, assistant, prompt, budget)
        answers.append(trace)
        texts.append(Texts(prompt=prompt.name, alone=alone[prompt.name], with_draft=tokens))
    program = Path(sys.executable).resolve()
    return Route(
        name=NAME,
        regime=own.regime.model_copy(update={"spec_type": "speculation_type=dflash", "fallback": None}),
        ran=Ran(
            provider=NAME,
            executable=str(program),
            digest=file_digest(program),
            build=own.regime.build,
            libraries=(),
            devices=(own.regime.device,),
            nodes=(),
            variant=own.regime.kernel,
            arguments=tuple(sys.argv),
            environment={},
        ),
        target=None,
        draft=None,
        window_rule="inclusive",
        answers=tuple(answers),
        texts=tuple(texts),
    )

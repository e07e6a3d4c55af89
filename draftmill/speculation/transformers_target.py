"""A Hugging Face causal language model as a target, through transformers and torch (extra `target`).

Features are the outputs of decoder layers, which hooks read: entry L + 1 of `hidden_states`, except that the last
entry there is already normed in most models. A cache of keys and values drops rejected rows. What has recurrent layers
cannot: its states are put back to a snapshot, and the accepted rows run again.
"""

import copy
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from draftmill.outcome import Refusal, Refused
from draftmill.speculation.target import Rows, ancestors, depths, is_chain
from draftmill.speculation.transformers_loading import load_model

ATTENTION = ("full_attention", "sliding_attention", "chunked_attention")
"""Kinds of layers whose state is keys and values."""
RECURRENT = ("linear_attention", "mamba", "mamba2", "conv", "recurrent")
"""Kinds of layers whose state is a sum over the past."""


class TransformersTarget:
    """One sequence at a time; `prefill` begins a new one."""

    def __init__(self, model: Any, taps: Sequence[int], name: str = "model") -> None:
        """Raises Refused: target.layer_kind, target.layers_unknown, target.tap_outside."""
        import torch

        self._torch: Any = torch
        self._model = model.eval()
        config = self._model.config.get_text_config(decoder=True)
        self.taps = tuple(taps)
        self.hidden_size: int = config.hidden_size
        self.layers: int = config.num_hidden_layers
        self.context: int | None = getattr(config, "max_position_embeddings", None)
        self._embedding = self._model.get_input_embeddings().weight
        self.vocabulary: int = self._embedding.shape[0]
        self._kinds = _kinds(config, name)
        self._sliding = getattr(config, "sliding_window", None) if "sliding_attention" in self._kinds else None
        self._recurrent = any(kind in RECURRENT for kind in self._kinds)
        taken = inspect.signature(self._model.forward).parameters
        self._takes_positions = "position_ids" in taken
        self._cache_word = (
            "cache" if "cache" in inspect.signature(self._model.forward).parameters else "past_key_values"
        )
        self._cache: Any = None
        self._length = 0
        self._batch: tuple[list[int], bool] = ([], True)
        self._snapshot: dict[int, Any] = {}
        self._tapped: dict[int, Any] = {}
        layers = getattr(self._model.get_decoder(), "layers", None)
        if layers is None:
            raise Refused(
                Refusal(
                    "target.layers_unknown", name, type(self._model).__name__, "a decoder with a list of layers",
                    "Where this model keeps its layers is not known, so they cannot be tapped; take another engine.",
                )
            )  # fmt: skip
        if outside := [tap for tap in self.taps if not 0 <= tap < len(layers)]:
            raise Refused(
                Refusal(
                    "target.tap_outside", name, outside, f"0 to {len(layers) - 1}",
                    "The draft reads a layer that this target does not have: it was trained for another target.",
                )
            )  # fmt: skip
        for tap in self.taps:
            layers[tap].register_forward_hook(self._hook(tap))

    @property
    def architecture(self) -> str:
        return type(self._model).__name__

    @property
    def device_name(self) -> str:
        """torch's name of the device, and a GPU's own."""
        device = self._embedding.device
        return f"{device} {self._torch.cuda.get_device_name(device)}" if device.type == "cuda" else str(device)

    @property
    def kernel(self) -> str:
        """Which of its kernels torch takes on this processor."""
        return str(self._torch.backends.cpu.get_cpu_capability())

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end a text, as the model's generation config states them."""
        stated = self._model.generation_config.eos_token_id
        return frozenset([stated] if isinstance(stated, int) else stated or ())

    def use_threads(self, threads: int | None) -> int:
        """Sets torch's threads where asked, and returns how many there are."""
        if threads is not None:
            self._torch.set_num_threads(threads)
        return int(self._torch.get_num_threads())

    @classmethod
    def open(cls, folder: Path, taps: Sequence[int] = (), *, device: str = "cpu", dtype: str = "float32") -> Self:
        """A folder with config.json and safetensors. Raises what `load_model` and the constructor raise."""
        return cls(load_model(folder, device=device, dtype=dtype), taps, str(folder))

    def prefill(self, tokens: Sequence[int]) -> Rows:
        from transformers import DynamicCache

        # Without a config every layer keeps all of its keys: rejected rows can be taken off, and a window is a mask.
        self._cache = DynamicCache(config=self._model.config) if self._recurrent else DynamicCache()
        self._length = 0
        rows = self._run(tokens, logits_to_keep=1)
        self._length = len(tokens)
        return rows

    def verify(self, tokens: Sequence[int], parents: Sequence[int]) -> Rows:
        flat = is_chain(parents)
        if not flat and self._recurrent:
            raise Refused(
                Refusal(
                    "target.recurrent_tree", "target", sorted({kind for kind in self._kinds if kind in RECURRENT}),
                    "layers of attention only",
                    "A recurrent layer has one state, so branches cannot be verified in one pass; propose chains.",
                )
            )  # fmt: skip
        self._snapshot = self._states()
        self._batch = list(tokens), flat
        if flat:
            return self._run(tokens)
        past = self._length
        positions = past + np.array(depths(parents))
        return self._run(tokens, **self._tree(parents, past, positions))

    def commit(self, path: Sequence[int]) -> None:
        tokens, flat = self._batch
        kept = list(path)
        self._length += len(kept)
        if len(kept) == len(tokens) and flat:
            return
        if self._snapshot:
            for layer, state in enumerate(self._cache.layers):
                if layer in self._snapshot:
                    self._cache.layers[layer] = self._snapshot[layer]
                else:
                    state.crop(-len(tokens))
            self._length -= len(kept)
            self._run([tokens[row] for row in kept])
            self._length += len(kept)
        elif kept == list(range(len(kept))):
            self._cache.crop(len(kept) - len(tokens))
        else:
            past = self._length - len(kept)
            rows = self._torch.tensor([*range(past), *(past + row for row in kept)], device=self._embedding.device)
            for state in self._cache.layers:
                state.keys, state.values = (held.index_select(-2, rows) for held in (state.keys, state.values))

    def embed(self, tokens: Sequence[int]) -> np.ndarray:
        rows = self._torch.tensor(list(tokens), device=self._embedding.device)
        return self._array(self._embedding[rows])

    def head(self, rows: np.ndarray) -> np.ndarray:
        head = self._model.get_output_embeddings()
        with self._torch.inference_mode():
            given = self._torch.from_numpy(np.ascontiguousarray(rows)).to(head.weight.device, head.weight.dtype)
            return self._array(head(given))

    def _run(self, tokens: Sequence[int], **options: Any) -> Rows:
        ids = self._torch.tensor([list(tokens)], device=self._embedding.device)
        if self._takes_positions and "position_ids" not in options:
            # Some models count from 0 in every pass when they are not told.
            first = self._length
            options["position_ids"] = self._torch.arange(first, first + len(tokens), device=ids.device)[None]
        with self._torch.inference_mode():
            found = self._model(input_ids=ids, use_cache=True, **{self._cache_word: self._cache}, **options)
        features = [self._array(self._tapped.pop(tap)[0]) for tap in self.taps]
        joined = np.concatenate(features, axis=1) if features else np.empty((len(tokens), 0), np.float32)
        rows = Rows(self._array(found.logits[0]), joined)
        self._require_finite(rows.logits, "logits")
        self._require_finite(rows.features, "outputs of tapped layers")
        return rows

    def _require_finite(self, values: np.ndarray, what: str) -> None:
        if not np.isfinite(values).all():
            raise Refused(
                Refusal(
                    "target.not_finite", type(self._model).__name__, f"{int((~np.isfinite(values)).sum())} {what}",
                    "finite numbers",
                    "The target computes infinities or no numbers: its weights are damaged, or the dtype too narrow. "
                    "Take it from its repository again, or measure with --dtype float32.",
                )
            )  # fmt: skip

    def _tree(self, parents: Sequence[int], past: int, positions: np.ndarray) -> dict[str, Any]:
        """Positions by depth, and masks in which a row sees the past, its ancestors and itself."""
        torch, device = self._torch, self._embedding.device
        sees = np.concatenate([np.ones((len(parents), past), bool), ancestors(parents)], axis=1)
        distance = positions[:, None] - np.concatenate([np.arange(past), positions])[None]

        def mask(allowed: np.ndarray) -> Any:
            # Additive, which every attention implementation takes.
            least = torch.finfo(self._embedding.dtype).min
            found = torch.zeros((1, 1, *allowed.shape), dtype=self._embedding.dtype)
            return found.masked_fill(torch.from_numpy(~allowed), least).to(device)

        full = mask(sees)
        masks = full
        if self._sliding is not None:
            masks = {"full_attention": full, "sliding_attention": mask(sees & (distance < self._sliding))}
        return {"attention_mask": masks, "position_ids": torch.from_numpy(positions)[None].to(device)}

    def _states(self) -> dict[int, Any]:
        """Copies of the states that cannot be cropped, by layer."""
        if not self._recurrent:
            return {}
        from transformers.cache_utils import DynamicLayer

        return {
            layer: copy.deepcopy(state)
            for layer, state in enumerate(self._cache.layers)
            if type(state) is not DynamicLayer
        }

    def _hook(self, tap: int) -> Any:
        def keep(_module: object, _inputs: object, output: Any) -> None:
            self._tapped[tap] = output[0] if isinstance(output, tuple) else output

        return keep

    def _array(self, tensor: Any) -> np.ndarray:
        return tensor.detach().to("cpu", self._torch.float32).numpy()


def _kinds(config: Any, name: str) -> list[str]:
    """The kind of each layer; a config without any has attention throughout."""
    kinds = list(getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ())
    kinds = ["full_attention" if kind == "attention" else kind for kind in kinds]
    if unknown := sorted({kind for kind in kinds if kind not in ATTENTION + RECURRENT}):
        raise Refused(
            Refusal(
                "target.layer_kind", name, unknown, [*ATTENTION, *RECURRENT],
                "How the state of such a layer is put back after rejected drafts is not known, so the output could be "
                "wrong; measure with another engine.",
            )
        )  # fmt: skip
    return kinds

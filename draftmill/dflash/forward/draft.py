"""The forward pass of a DFlash draft of either generation, in numpy: the reference that a device route is held against.

Definition: dflash.md section 3 (context, block, layer, visibility) and 5.3, 5.4 (convolution, selector). Written for
float32 with BLAS; float64 is for checking. Only the definition is followed: what ports do differently is a parameter.
"""

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, overload

import numpy as np

from draftmill.dflash import names
from draftmill.dflash.checkpoint import Checkpoint
from draftmill.dflash.config import DraftConfig, read_config
from draftmill.dflash.config_kinds import SLIDING
from draftmill.dflash.forward.attention import WindowRule, attend, hidden_keys
from draftmill.dflash.forward.context import KvCache
from draftmill.dflash.forward.convolution import Kernels
from draftmill.dflash.forward.products import Gemm, PackedWeights, Weights, checked
from draftmill.dflash.forward.rotation import Rotation, rotate
from draftmill.dflash.forward.selector import Selector, transformed
from draftmill.dflash.forward.trace import Trace
from draftmill.dflash.package import Package
from draftmill.outcome import BadConfiguration, Refusal, Refused

_Keep = Callable[[str, np.ndarray], None]


def _nothing(name: str, values: np.ndarray) -> None:
    """No trace was asked for."""


class Draft:
    """A draft that can be run. Tensors are decoded when they are first needed, layer by layer, and kept.

    hidden: H; block: B rows; context: C rows. `gemm`, where given, computes every projection in place of the host.
    """

    def __init__(self, weights: Weights, *, window_rule: WindowRule = WindowRule.EXCLUSIVE, gemm: Gemm | None = None):
        self.config: DraftConfig = weights.source.config
        self.weights = weights
        self.window_rule = window_rule
        elsewhere = checked(gemm) if gemm else None
        self._gemm = elsewhere or weights.product
        self._context_gemm = elsewhere or weights.exact
        self._rotation = Rotation(self.config.rope, self.config.head_dim, weights.dtype)
        self._selector = Selector(
            self.config,
            lambda rows: self._gemm(names.SELECTOR, rows),
            lambda ids: weights.rows(names.PREDECESSOR, ids),
            lambda ids: weights.rows(names.SUCCESSOR, ids),
        )

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        dtype: np.dtype | type = np.float32,
        packed: bool = False,
        causal: bool | None = None,
        window_rule: WindowRule = WindowRule.EXCLUSIVE,
        gemm: Gemm | None = None,
    ) -> Self:
        """A package, an upstream checkpoint, or a GGUF file. packed: keep a package's matrices 4-bit, and decode during
        a product.

        Raises Refused (`Package.open`, `Checkpoint.open`, `GgufDraft.open`), BadConfiguration dflash.nothing_packed,
        OSError.
        """
        if folder.is_file():
            from draftmill.dflash.gguf_form.draft import GgufDraft

            if packed:
                raise BadConfiguration(
                    f"{folder} is a GGUF, which is decoded; leave --weights away.", code="dflash.nothing_packed"
                )
            return cls(
                Weights(GgufDraft.open(folder, causal=causal), np.dtype(dtype)), window_rule=window_rule, gemm=gemm
            )
        if not read_config(folder, causal=causal).vendor:
            if packed:
                raise BadConfiguration(
                    f"{folder} is a checkpoint, whose weights are not packed; leave --weights away.",
                    code="dflash.nothing_packed",
                )
            weights = Weights(Checkpoint.open(folder, causal=causal), np.dtype(dtype))
        else:
            weights = (PackedWeights if packed else Weights)(Package.open(folder, causal=causal), np.dtype(dtype))
        return cls(weights, window_rule=window_rule, gemm=gemm)

    def cache(self, *, start: int = 0, trace: bool = False) -> KvCache:
        """An empty cache of context rows, of which the first will stand at absolute position `start`."""
        return KvCache(self, start, Trace() if trace else None)

    @overload
    def forward(
        self, features: np.ndarray, block: np.ndarray, *, start: int = 0, trace: Literal[False] = False
    ) -> np.ndarray: ...
    @overload
    def forward(
        self, features: np.ndarray, block: np.ndarray, *, start: int = 0, trace: Literal[True]
    ) -> tuple[np.ndarray, Trace]: ...
    def forward(
        self, features: np.ndarray, block: np.ndarray, *, start: int = 0, trace: bool = False
    ) -> np.ndarray | tuple[np.ndarray, Trace]:
        """features [C, taps * H], block [B, H] -> [B, H] after the final norm. start: position of the first row.

        features: outputs of the target's layers `target_layer_ids`, side by side in that order. block: rows of the
        target's embedding table for [anchor, mask, ...], without `input_embedding_scale`, which is applied here.
        trace: also return every intermediate by name.
        Raises ValueError for other shapes.
        """
        cache = self.cache(start=start, trace=trace)
        cache.extend(features)
        rows = cache.forward_cached(block)
        return rows if cache.trace is None else (rows, cache.trace)

    def pick(self, hidden: np.ndarray, logits: np.ndarray, previous: int) -> int:
        """The token that one row drafts. hidden [H] as `forward` gives it; logits [V], the target's head of it.

        Generation 1 takes the argmax; generation 2 the candidate selector's choice after the token `previous`.
        """
        return int(self.walk(hidden[None], logits[None], previous)[0])

    def walk(self, hidden: np.ndarray, logits: np.ndarray, anchor: int) -> np.ndarray:
        """Drafts of the rows that predict, so not of the anchor row: hidden [n, H], logits [n, V] -> ids [n].

        Columns of logits beyond the draft's vocabulary are padding of the target's head, and never drafted.
        """
        self._require(hidden, (None, self.config.hidden_size), "hidden")
        self._require(logits, (len(hidden), None), "logits")
        if logits.shape[1] < self.config.vocab_size:
            raise ValueError(
                f"logits must have the {self.config.vocab_size} columns of the draft's vocabulary at least"
            )
        logits = logits[:, : self.config.vocab_size]
        if self.config.generation == 1:
            return np.argmax(logits, axis=1)
        return self._selector.walk(
            hidden.astype(self.weights.dtype, copy=False), logits.astype(self.weights.dtype, copy=False), anchor
        )

    def scores(self, hidden: np.ndarray, logits: np.ndarray, previous: int) -> np.ndarray:
        """What `pick` takes the best of, [vocabulary]; -inf for tokens that cannot be picked. Arguments as `pick`."""
        logits = logits[: self.config.vocab_size].astype(self.weights.dtype, copy=False)
        if self.config.generation == 1:
            return logits
        return self._selector.scores(hidden.astype(self.weights.dtype, copy=False), logits, previous)

    def logits(self, head: np.ndarray) -> np.ndarray:
        """What the target's head gave, with `output_multiplier` and softcap applied."""
        return transformed(head, self.config)

    def context_rows(self, features: np.ndarray, trace: Trace | None) -> np.ndarray:
        """hidden_norm(fc . features), [C, H]: the same rows for every layer."""
        self._require(features, (None, self.config.taps * self.config.hidden_size), "features")
        fused = self._context_gemm(names.FUSION, features.astype(self.weights.dtype, copy=False))
        rows = self._norm(fused, names.HIDDEN_NORM)
        if trace is not None:
            trace.append("context.fused", fused)
            trace.append("context.normed", rows)
        return rows

    def context_pair(self, layer: int, rows: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Keys (normed, rotated) and values of context rows in one layer, [C, kv heads, d]."""
        return self._pair(layer, rows, positions, self._context_gemm)

    def block_rows(self, cache: KvCache, block: np.ndarray) -> np.ndarray:
        """What `KvCache.forward_cached` gives."""
        self._require(block, (None, self.config.hidden_size), "block")
        dtype, keep = self.weights.dtype, _nothing if cache.trace is None else cache.trace.keep
        rows = block.astype(dtype) * dtype.type(self.config.input_embedding_scale)
        positions = cache.end + np.arange(len(rows))
        for layer in range(self.config.num_hidden_layers):
            rows = rows + self._attention(layer, rows, positions, cache, keep)
            rows = rows + self._mlp(layer, rows, keep)
            keep(f"layers.{layer}.output", rows)
        rows = self._norm(rows, names.FINAL_NORM)
        if not np.isfinite(rows).all():
            raise Refused(
                Refusal(
                    "dflash.forward_not_finite",
                    "output",
                    f"{int((~np.isfinite(rows)).sum())} of {rows.size} values",
                    "finite numbers",
                    "The pass ends in infinities or no numbers: features or block are too large for this dtype, or the "
                    "draft's weights are damaged (validate the package).",
                )
            )
        keep("output", rows)
        return rows

    def _attention(
        self, layer: int, rows: np.ndarray, positions: np.ndarray, cache: KvCache, keep: _Keep
    ) -> np.ndarray:
        at = f"layers.{layer}.attention"
        given, kernels = self._given(layer, "attention", "input_layernorm", rows, keep)
        queries = self._heads(layer, "q", given, self._gemm)
        queries = rotate(queries, *self._rotation.at(positions))
        keys, values = self._pair(layer, given, positions, self._gemm)
        keep(f"{at}.q", queries)
        keep(f"{at}.k", keys)
        keep(f"{at}.v", values)
        all_keys, all_values, all_positions = cache.with_block(layer, keys, values)
        window = self.config.sliding_window if self.config.layer_types[layer] == SLIDING else None
        hidden = hidden_keys(positions, all_positions, window, self.window_rule, self.config.causal)
        mixed = attend(queries, all_keys, all_values, hidden, self.weights.matmul)
        keep(f"{at}.mixed", mixed)
        out = self._gemm(names.layer(layer, "self_attn.o_proj.weight"), mixed)
        out = kernels.after(out) if kernels else out
        keep(f"{at}.out", out)
        return out

    def _mlp(self, layer: int, rows: np.ndarray, keep: _Keep) -> np.ndarray:
        at = f"layers.{layer}.mlp"
        given, kernels = self._given(layer, "mlp", "post_attention_layernorm", rows, keep)
        gate = self._gemm(names.layer(layer, "mlp.gate_proj.weight"), given)
        up = self._gemm(names.layer(layer, "mlp.up_proj.weight"), given)
        with np.errstate(over="ignore"):  # exp of a very negative gate: x / inf is the 0 it should be
            gated = gate / (1 + np.exp(-gate)) * up
        keep(f"{at}.gated", gated)
        out = self._gemm(names.layer(layer, "mlp.down_proj.weight"), gated)
        out = kernels.after(out) if kernels else out
        keep(f"{at}.out", out)
        return out

    def _given(
        self, layer: int, sublayer: str, norm: str, rows: np.ndarray, keep: _Keep
    ) -> tuple[np.ndarray, Kernels | None]:
        """What a sublayer works on: the normed rows, in generation 2 convolved, and the kernels for what it gives."""
        normed = self._norm(rows, names.layer(layer, f"{norm}.weight"))
        keep(f"layers.{layer}.{sublayer}.normed", normed)
        kernels = self._kernels(layer, f"{sublayer}_conv", normed)
        if kernels is None:
            return normed, None
        convolved = kernels.before(normed)
        keep(f"layers.{layer}.{sublayer}.convolved", convolved)
        return convolved, kernels

    def _pair(self, layer: int, rows: np.ndarray, positions: np.ndarray, gemm: Gemm) -> tuple[np.ndarray, np.ndarray]:
        keys = rotate(self._heads(layer, "k", rows, gemm), *self._rotation.at(positions))
        values = gemm(names.layer(layer, "self_attn.v_proj.weight"), rows)
        return keys, values.reshape(len(rows), -1, self.config.head_dim)

    def _heads(self, layer: int, which: str, rows: np.ndarray, gemm: Gemm) -> np.ndarray:
        """Queries or keys by heads, each head normed with the gain that all of them share: [n, heads, d]."""
        projected = gemm(names.layer(layer, f"self_attn.{which}_proj.weight"), rows)
        heads = projected.reshape(len(rows), -1, self.config.head_dim)
        return self._norm(heads, names.layer(layer, f"self_attn.{which}_norm.weight"))

    def _kernels(self, layer: int, which: str, normed: np.ndarray) -> Kernels | None:
        if self.config.second is None:
            return None
        base = self.weights.tensor(names.layer(layer, f"{which}.base_kernel"))
        dynamic = self._gemm(names.layer(layer, f"{which}.kernel_projection.weight"), normed)
        return Kernels(base, dynamic, self.config.second.conv_group_size)

    def _norm(self, rows: np.ndarray, gain: str) -> np.ndarray:
        """RMSNorm over the last axis, eps inside the root, a plain multiplicative gain."""
        # In float64: the square of a large residual would overflow, and the row would silently become zeros.
        mean = np.mean(np.square(rows, dtype=np.float64), axis=-1, keepdims=True)
        scale = (1 / np.sqrt(mean + self.config.rms_norm_eps)).astype(rows.dtype)
        return rows * scale * self.weights.tensor(gain)

    @staticmethod
    def _require(rows: np.ndarray, shape: tuple[int | None, ...], what: str) -> None:
        wrong = rows.ndim != len(shape) or any(
            want is not None and have != want for have, want in zip(rows.shape, shape, strict=False)
        )
        if wrong or not len(rows):
            wanted = ", ".join("n" if size is None else str(size) for size in shape)
            raise ValueError(f"{what} must be [{wanted}] with n at least 1, not {list(rows.shape)}")
        if not np.isfinite(rows).all():
            raise ValueError(f"{what} has {int((~np.isfinite(rows)).sum())} values that are infinite or no numbers")

    def close(self) -> None:
        self.weights.source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

"""The reference forward on the Bolt draft's geometry (327 M weights), against memory's own limit and against torch.

Two passes: 2 context rows and a block of 8, and 512 and 8; each as one call, and with the context cached beforehand.
The floor is the bytes of the float32 weights that the pass reads, divided by the bandwidth of a copy (bytes copied a
second). torch runs the same pass, written out below, on the same weights and as many threads. Every turn measures the
copy and each route one after the other, so that what else the machine does meets all of them: seconds are the best of
the turns, ratios the median of each turn's own. `--weights packed` also keeps the projections 4-bit in memory and
prints that route's ratio; `--products blas` takes numpy's products, as where numba is not installed.

    python -m benchmarks.forward [--weights packed]        needs torch and numba: pip install 'draftmill[target,engine]'
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.published_geometries import CONFIGS, make
from draftmill.dflash import names
from draftmill.dflash.forward import Draft
from draftmill.dflash.forward.products import PackedWeights, Weights
from draftmill.dflash.inventory import Role, expected_tensors
from draftmill.dflash.package import Package

CORES = len(os.sched_getaffinity(0))
TURNS = 9
CONTEXTS = (2, 512)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Copy:
    """400 MB, far beyond a core's cache, by one thread a core."""

    BYTES = 400_000_000

    def __init__(self) -> None:
        source = np.ones(self.BYTES // 4, np.float32)
        target = np.empty_like(source)
        self._parts = list(zip(np.array_split(target, CORES), np.array_split(source, CORES), strict=True))
        self._pool = ThreadPoolExecutor(CORES)

    def __call__(self) -> None:
        list(self._pool.map(lambda part: np.copyto(*part), self._parts))


class TorchDraft:
    """The same pass with torch's own products and attention; weights are the draft's arrays, not copied."""

    def __init__(self, draft: Draft) -> None:
        import torch

        torch.set_num_threads(CORES)
        self.torch = torch
        self.config = draft.config
        wanted = expected_tensors(draft.config, scalars=False)
        self.weights = {each.name: torch.from_numpy(draft.weights.source.decode(each.name)) for each in wanted}
        half = torch.arange(0, self.config.head_dim, 2, dtype=torch.float64) / self.config.head_dim
        self.frequencies = self.config.rope.theta**-half

    def timed(self, features: np.ndarray, block: np.ndarray, cached: bool) -> Callable[[], object]:
        given, rows = self.torch.from_numpy(features), self.torch.from_numpy(block)
        with self.torch.inference_mode():
            context = self.context(given)

        def work() -> object:
            with self.torch.inference_mode():
                return self.block(context if cached else self.context(given), rows)

        return work

    def norm(self, rows, name):
        return self.torch.nn.functional.rms_norm(
            rows, rows.shape[-1:], self.weights[name], eps=self.config.rms_norm_eps
        )

    def heads(self, layer, which, rows, positions):
        at = f"self_attn.{which}_proj.weight"
        found = self.linear(rows, names.layer(layer, at)).view(len(rows), -1, self.config.head_dim)
        if which == "v":
            return found.transpose(0, 1)
        found = self.norm(found, names.layer(layer, f"self_attn.{which}_norm.weight"))
        angles = self.torch.outer(positions.double(), self.frequencies).repeat(1, 2)
        one, two = found.chunk(2, -1)
        turned = self.torch.cat([-two, one], -1)
        return (found * angles.cos().float()[:, None] + turned * angles.sin().float()[:, None]).transpose(0, 1)

    def linear(self, rows, name):
        return self.torch.nn.functional.linear(rows, self.weights[name])

    def context(self, features):
        """Keys and values of every layer."""
        rows = self.norm(self.linear(features, names.FUSION), names.HIDDEN_NORM)
        positions = self.torch.arange(len(rows))
        return [
            (self.heads(layer, "k", rows, positions), self.heads(layer, "v", rows, positions))
            for layer in range(self.config.num_hidden_layers)
        ]

    def block(self, context, rows):
        start = context[0][0].shape[1]
        positions = start + self.torch.arange(len(rows))
        for layer, (keys, values) in enumerate(context):
            normed = self.norm(rows, names.layer(layer, "input_layernorm.weight"))
            queries, own_keys, own_values = (self.heads(layer, which, normed, positions) for which in "qkv")
            mixed = self.torch.nn.functional.scaled_dot_product_attention(
                queries[None],
                self.torch.cat([keys, own_keys], 1)[None],
                self.torch.cat([values, own_values], 1)[None],
                enable_gqa=True,
            )[0]
            mixed = mixed.transpose(0, 1).reshape(len(rows), -1)
            rows = rows + self.linear(mixed, names.layer(layer, "self_attn.o_proj.weight"))
            normed = self.norm(rows, names.layer(layer, "post_attention_layernorm.weight"))
            gated = self.torch.nn.functional.silu(self.linear(normed, names.layer(layer, "mlp.gate_proj.weight")))
            gated *= self.linear(normed, names.layer(layer, "mlp.up_proj.weight"))
            rows = rows + self.linear(gated, names.layer(layer, "mlp.down_proj.weight"))
        return self.norm(rows, names.FINAL_NORM)


def weight_bytes(draft: Draft, cached: bool) -> int:
    """float32 bytes that a pass reads: everything, or without the fusion where the context is there already."""
    return sum(
        4 * int(np.prod(each.shape))
        for each in expected_tensors(draft.config, scalars=False)
        if not (cached and each.role == Role.FUSION)
    )


def compare(folder: Path, packed: bool, compiled: bool) -> None:
    rng = np.random.default_rng(0)
    single = np.dtype(np.float32)
    draft = Draft(Weights(Package.open(folder), single, compiled=compiled))
    config = draft.config
    block = rng.standard_normal((config.block_size, config.hidden_size), np.float32)
    other = TorchDraft(draft)
    tight = Draft(PackedWeights(Package.open(folder), single, compiled=compiled)) if packed else None
    copy = Copy()
    print(
        f"{weight_bytes(draft, False) / 1e9:.2f} GB of float32, {CORES} threads, {TURNS} turns, "
        f"products by {'the compiled kernel' if compiled else 'BLAS'}, load {os.getloadavg()[0]:.1f}"
    )
    print(
        "context  cached   copy GB/s     floor  draftmill      torch   / floor   / torch"
        + ("     packed   / f32" if tight else "")
    )
    for rows in CONTEXTS:
        features = rng.standard_normal((rows, config.taps * config.hidden_size), np.float32)
        for cached in (False, True):
            arms: dict[str, Callable[[], object]] = {"copy": copy}
            arms["mill"] = mill_pass(draft, features, block, cached)
            arms["torch"] = other.timed(features, block, cached)
            if tight:
                arms["packed"] = mill_pass(tight, features, block, cached)
            apart = np.abs(np.asarray(arms["mill"]()) - np.asarray(arms["torch"]())).max()
            if apart > 1e-3:
                raise SystemExit(f"the two passes differ by {apart}, so their times say nothing")
            taken: dict[str, list[float]] = {name: [] for name in arms}
            for _ in range(TURNS):
                for name, arm in arms.items():
                    taken[name].append(seconds(arm))
            print(line(rows, cached, taken, weight_bytes(draft, cached) / Copy.BYTES), flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")


def line(rows: int, cached: bool, taken: dict[str, list[float]], copies: float) -> str:
    """copies: the floor, in copies."""
    best = {name: min(times) for name, times in taken.items()}
    found = f"{rows:7}  {'yes' if cached else 'no':>6}  {Copy.BYTES / best['copy'] / 1e9:10.1f}"
    found += f"  {copies * best['copy']:6.3f} s  {best['mill']:7.3f} s  {best['torch']:7.3f} s"
    found += f"   {ratio(taken, 'mill', 'copy') / copies:7.2f}   {ratio(taken, 'mill', 'torch'):7.2f}"
    if "packed" in taken:
        found += f"  {best['packed']:7.3f} s   {ratio(taken, 'packed', 'mill'):5.2f}"
    return found


def ratio(taken: dict[str, list[float]], one: str, other: str) -> float:
    return statistics.median(a / b for a, b in zip(taken[one], taken[other], strict=True))


def mill_pass(draft: Draft, features: np.ndarray, block: np.ndarray, cached: bool) -> Callable[[], np.ndarray]:
    if not cached:
        return lambda: draft.forward(features, block)
    cache = draft.cache()
    cache.extend(features)
    return lambda: cache.forward_cached(block)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", choices=["float32", "packed"], default="float32")
    parser.add_argument("--products", choices=["compiled", "blas"], default="compiled")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="draftmill-forward-") as place:
        folder = Path(place) / "bolt"
        make(folder, CONFIGS["bolt"])
        compare(folder, asked.weights == "packed", asked.products == "compiled")


if __name__ == "__main__":
    main()

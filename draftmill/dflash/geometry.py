"""What gives a draft's tensors their names and sizes: as much as a config states, even where the rest is refused."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Second:
    """What only generation 2 has: the grouped convolution and the candidate selector (dflash.md 5.3, 5.4)."""

    conv_kernel_size: int
    conv_group_size: int
    selector_rank: int
    selector_top_k: int


@dataclass(frozen=True)
class Geometry:
    """Sizes in elements, under the names that they have in `DraftConfig`. taps: how many target layers are read.

    A 0 is a size that the config does not give, and makes every extent 0 that it is a part of.
    """

    generation: Literal[1, 2]
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    taps: int
    second: Second | None = None

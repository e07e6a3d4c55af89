"""Every intermediate of a pass by name, so that a device's dump can be compared row by row.

Names, each an array whose first axis is rows: context.fused, context.normed; of layer i layers.i.context.{k,v},
layers.i.attention.{normed,q,k,v,mixed,out}, layers.i.mlp.{normed,gated,out}, layers.i.output; output. Generation 2 has
layers.i.{attention,mlp}.convolved besides. q and k are after their norms and rotation; heads lie side by side in a row;
`out` is what is added to the residual rows.
"""

import numpy as np


class Trace(dict[str, np.ndarray]):
    """name -> [rows, width]."""

    def keep(self, name: str, values: np.ndarray) -> None:
        """values [rows, ...], of the newest block."""
        self[name] = values.reshape(len(values), -1).copy()

    def append(self, name: str, values: np.ndarray) -> None:
        """values [rows, ...], of further context rows."""
        rows = values.reshape(len(values), -1)
        self[name] = np.concatenate([self[name], rows]) if name in self else rows.copy()

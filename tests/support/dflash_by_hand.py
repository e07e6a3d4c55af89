"""The forward of a DFlash draft in plain loops, from its definition (dflash.md 3.3, 5.3): one number at a time.

Nothing of draftmill's forward is used, so that the tests have something to hold it against. Slow on purpose.
"""

import math

import numpy as np


def norm(row, gain, eps):
    mean = sum(value * value for value in row) / len(row)
    return [value / math.sqrt(mean + eps) * g for value, g in zip(row, gain, strict=True)]


def times(matrix, row):
    return [sum(w * x for w, x in zip(weights, row, strict=True)) for weights in matrix]


def rotated(head, position, theta):
    half = len(head) // 2
    turned = [0.0] * len(head)
    for j in range(half):
        angle = position * theta ** (-2 * j / len(head))
        turned[j] = head[j] * math.cos(angle) - head[j + half] * math.sin(angle)
        turned[j + half] = head[j + half] * math.cos(angle) + head[j] * math.sin(angle)
    return turned


def convolve(rows, base, dynamic, side, taps, group):
    """rows [B][H]; base [2][taps][H]; dynamic: a row's 2 * taps * H / group numbers."""
    out = []
    for t, row in enumerate(rows):
        groups = len(row) // group
        line = []
        for channel in range(len(row)):
            total = 0.0
            for k in range(taps):
                if t - k >= 0:
                    own = dynamic[t][(side * taps + k) * groups + channel // group]
                    total += (base[side][k][channel] + own) * rows[t - k][channel]
            line.append(total)
        out.append(line)
    return out


def forward(config, tensors, features, block, start=0):
    """[B, H] by the definition with the window -w < D < w."""
    heads, groups, size, eps = (
        config.num_attention_heads,
        config.num_key_value_heads,
        config.head_dim,
        config.rms_norm_eps,
    )
    tensors = {name: values.tolist() for name, values in tensors.items()}
    context = [norm(times(tensors["fc.weight"], row), tensors["hidden_norm.weight"], eps) for row in features.tolist()]
    rows = [[value * config.input_embedding_scale for value in row] for row in block.tolist()]
    for i in range(config.num_hidden_layers):
        at = f"layers.{i}."

        def matrix(part, at=at):
            return tensors[f"{at}{part}.weight"]

        def heads_of(row, part, gain, position, matrix=matrix):
            flat = times(matrix(part), row)
            found = [flat[h * size : (h + 1) * size] for h in range(len(flat) // size)]
            if gain is None:
                return found
            return [rotated(norm(head, matrix(gain), eps), position, config.rope.theta) for head in found]

        def around(part, normed, sublayer, at=at, matrix=matrix):
            """The sublayer, between the two halves of its convolution where there is one."""
            if config.second is None:
                return sublayer(normed)
            taps, group = config.second.conv_kernel_size, config.second.conv_group_size
            dynamic = [times(matrix(f"{part}.kernel_projection"), row) for row in normed]
            base = tensors[f"{at}{part}.base_kernel"]
            given = convolve(normed, base, dynamic, 0, taps, group)
            return convolve(sublayer(given), base, dynamic, 1, taps, group)

        def attention(given, i=i, matrix=matrix, heads_of=heads_of):
            keys, values, positions = [], [], []
            for place, row in enumerate(context + given):
                keys.append(heads_of(row, "self_attn.k_proj", "self_attn.k_norm", start + place))
                values.append(heads_of(row, "self_attn.v_proj", None, 0))
                positions.append(start + place)
            out = []
            for t, row in enumerate(given):
                position = start + len(context) + t
                queries = heads_of(row, "self_attn.q_proj", "self_attn.q_norm", position)
                mixed = []
                for h in range(heads):
                    g = h // (heads // groups)
                    seen = []
                    for place in range(len(keys)):
                        distance = position - positions[place]
                        slides = config.layer_types[i] == "sliding_attention"
                        if slides and not -config.sliding_window < distance < config.sliding_window:
                            continue
                        if slides and config.causal and distance < 0:
                            continue
                        score = sum(a * b for a, b in zip(queries[h], keys[place][g], strict=True)) / math.sqrt(size)
                        seen.append((score, values[place][g]))
                    top = max(score for score, _ in seen)
                    total = sum(math.exp(score - top) for score, _ in seen)
                    mixed += [
                        sum(math.exp(score - top) / total * value[c] for score, value in seen) for c in range(size)
                    ]
                out.append(times(matrix("self_attn.o_proj"), mixed))
            return out

        def mlp(given, matrix=matrix):
            out = []
            for row in given:
                gate, up = times(matrix("mlp.gate_proj"), row), times(matrix("mlp.up_proj"), row)
                gated = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up, strict=True)]
                out.append(times(matrix("mlp.down_proj"), gated))
            return out

        for part, gain, sublayer in (
            ("attention_conv", "input_layernorm", attention),
            ("mlp_conv", "post_attention_layernorm", mlp),
        ):
            added = around(part, [norm(row, matrix(gain), eps) for row in rows], sublayer)
            rows = [[a + b for a, b in zip(row, more, strict=True)] for row, more in zip(rows, added, strict=True)]
    return np.array([norm(row, tensors["norm.weight"], eps) for row in rows])

"""A Hugging Face target on tiny random models: features, kept rows, trees, recurrent layers; against transformers."""

import json

import numpy as np
import pytest

from draftmill.outcome import Refused
from draftmill.speculation.consistency import check_rows
from draftmill.speculation.greedy import decode
from draftmill.speculation.proposer import Proposal
from draftmill.speculation.target import ROOT, Rows, chain
from draftmill.speculation.transformers_target import TransformersTarget
from tests.support.scripted_target import Replaying

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers")

PROMPT = [3, 17, 5, 41, 8, 9]
COMMON = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256, "eos_token_id": None,
    "bos_token_id": None, "tie_word_embeddings": False,
}  # fmt: skip


def random_model(kind: str):
    torch.manual_seed(0)
    if kind == "llama":
        config = transformers.LlamaConfig(**COMMON)
    elif kind == "sliding":
        types = ["sliding_attention", "full_attention"] * 2
        config = transformers.Qwen3Config(**COMMON, layer_types=types, sliding_window=5, use_sliding_window=True)
    elif kind == "shared":
        # Of the Gemma 4 kind: the last two layers read the keys of earlier ones, and every layer a table of its own.
        sizes = COMMON | {"num_hidden_layers": 6, "layer_types": ["sliding_attention", "full_attention"] * 3}
        config = transformers.Gemma4TextConfig(
            **sizes, sliding_window=5, num_kv_shared_layers=2, hidden_size_per_layer_input=8, global_head_dim=16,
            vocab_size_per_layer_input=64,
        )  # fmt: skip
    else:
        config = transformers.Qwen3NextConfig(
            **COMMON, layer_types=["linear_attention", "full_attention"] * 2, linear_num_key_heads=2,
            linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8, num_experts=0,
            mlp_only_layers=[0, 1, 2, 3], decoder_sparse_step=1,
        )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config).double()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def greedy(model, count):
    """transformers' own greedy text, decoded anew for every token: no cache is involved."""
    text = list(PROMPT)
    with torch.no_grad():
        for _ in range(count):
            text.append(int(model(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1].argmax()))
    return text[len(PROMPT) :]


KINDS = ["llama", "sliding", "shared", "recurrent"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("accepted", [[0], [7], [3, 0, 7, 1]], ids=str)
def test_the_loop_gives_the_plain_greedy_text(kind, accepted):
    model = random_model(kind)
    text = greedy(model, 40)
    assert len(set(text)) > 5, "a text that repeats itself shows little"
    target = TransformersTarget(model, (1, 2))
    found = decode(target, Replaying(text + [0] * 10, accepted), PROMPT, budget=30)
    assert list(found.tokens) == text[:30]
    assert found.trace.rounds[0].accepted == accepted[0]


@pytest.mark.parametrize("kind", KINDS)
def test_features_are_the_outputs_of_the_tapped_layers(kind):
    model = random_model(kind)
    target = TransformersTarget(model, (2, 0))
    with torch.no_grad():
        states = model(input_ids=torch.tensor([PROMPT]), output_hidden_states=True, use_cache=False).hidden_states
    expected = torch.cat([states[3][0], states[1][0]], dim=1).float().numpy()
    rows = target.prefill(PROMPT)
    assert np.abs(rows.features - expected).max() < 1e-5
    assert rows.logits.shape == (1, 64)
    # The same rows as a batch behind a shorter text.
    target.prefill(PROMPT[:2])
    assert np.abs(target.verify(PROMPT[2:], chain(4)).features - expected[2:]).max() < 1e-5


def test_the_last_layer_is_tapped_before_the_final_norm():
    model = random_model("llama")
    target = TransformersTarget(model, (3,))
    with torch.no_grad():
        last = model(input_ids=torch.tensor([PROMPT]), output_hidden_states=True).hidden_states[4][0]
    rows = target.prefill(PROMPT).features
    assert np.abs(rows - last.float().numpy()).max() > 0.1, "that entry of the tuple is normed"
    with torch.no_grad():
        assert np.abs(model.model.norm(torch.from_numpy(rows).double()).numpy() - last.numpy()).max() < 1e-5


def reference_logits(model, text):
    with torch.no_grad():
        return model(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1].float().numpy()


@pytest.mark.parametrize("kind", ["llama", "sliding", "shared"])
def test_every_row_of_a_tree_is_its_own_path_alone(kind):
    """Three branches of several depths, longer than the window of 5; each row against a plain pass over its path."""
    model = random_model(kind)
    target = TransformersTarget(model, (1,))
    tokens = [10, 11, 12, 13, 14, 15, 16, 17]
    parents = [ROOT, 0, 0, 1, 3, 2, 4, 6]
    paths = {4: [10, 11, 13, 14], 5: [10, 12, 15], 7: [10, 11, 13, 14, 16, 17], 2: [10, 12]}
    target.prefill(PROMPT)
    rows = target.verify(tokens, parents)
    for row, path in paths.items():
        assert np.abs(rows.logits[row] - reference_logits(model, PROMPT + path)).max() < 1e-4
    # Committing a branch leaves what plain decoding of that branch would have left.
    target.commit([0, 2, 5])
    after = target.verify([20, 21], chain(2))
    assert np.abs(after.logits[1] - reference_logits(model, [*PROMPT, 10, 12, 15, 20, 21])).max() < 1e-4


class Branching:
    """At every depth the right token beside a wrong one, and below the wrong one a right-looking child."""

    n_max = 9

    def __init__(self, text):
        self.text, self.at = text, 0

    def begin(self, tokens, features): ...

    def propose(self, anchor):
        tokens, parents, parent = [], [], ROOT
        for token in self.text[self.at + 1 : self.at + 4]:
            wrong = len(tokens)
            tokens += [(token + 1) % 60, token, (token + 2) % 60]
            parents += [parent, wrong, parent]
            tokens[-1], tokens[-2] = tokens[-2], tokens[-1]  # below the wrong one a token, beside it the right one
            parent = len(tokens) - 1
        return Proposal(tuple(tokens), tuple(parents))

    def commit(self, tokens, features):
        self.at += len(tokens)


@pytest.mark.parametrize("kind", ["llama", "sliding", "shared"])
def test_a_branching_tree_gives_the_plain_greedy_text(kind):
    model = random_model(kind)
    text = greedy(model, 40)
    found = decode(TransformersTarget(model, ()), Branching(text + [0] * 10), PROMPT, budget=30)
    assert list(found.tokens) == text[:30]
    assert max(each.accepted for each in found.trace.rounds) == 3


def test_branches_of_a_recurrent_target_are_refused():
    target = TransformersTarget(random_model("recurrent"), ())
    target.prefill(PROMPT)
    with pytest.raises(Refused, match="one state"):
        target.verify([1, 2, 3], [ROOT, 0, 0])


def test_embedding_and_head_are_the_bare_matrices():
    model = random_model("llama")
    target = TransformersTarget(model, ())
    assert np.abs(target.embed([5, 9]) - model.model.embed_tokens.weight[[5, 9]].detach().float().numpy()).max() == 0
    rows = np.random.default_rng(0).standard_normal((3, 32)).astype(np.float32)
    assert np.abs(target.head(rows) - rows @ model.lm_head.weight.detach().float().numpy().T).max() < 1e-5


def test_a_scaled_embedding_is_read_without_its_scale():
    torch.manual_seed(0)
    config = transformers.Gemma3TextConfig(**COMMON, sliding_window=8, query_pre_attn_scalar=8)
    model = transformers.Gemma3ForCausalLM(config).eval()
    target = TransformersTarget(model, ())
    table = model.get_input_embeddings()
    bare = table.weight[[5, 9]].detach().numpy()
    assert np.abs(target.embed([5, 9]) - bare).max() == 0
    assert np.abs(table(torch.tensor([5, 9])).detach().numpy() - bare).max() > 0.01, "the module itself scales"


def test_a_tap_outside_the_target_is_refused():
    with pytest.raises(Refused, match="another target"):
        TransformersTarget(random_model("llama"), (1, 4))


def test_a_kind_of_layer_that_nobody_knows_is_refused():
    model = random_model("llama")
    model.config.layer_types = ["full_attention", "ttt", "full_attention", "full_attention"]
    with pytest.raises(Refused, match="ttt"):
        TransformersTarget(model, ())


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda folder: (folder / "config.json").unlink(), "target.config_missing"),
        (lambda folder: edit(folder, auto_map={"AutoModelForCausalLM": "m.M"}), "intake.auto_map"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x"), "target.unreadable"),
        (lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"), "target.unreadable"),
        (lambda folder: edit(folder, model_type="nobody"), "target.unreadable"),
        (lambda folder: edit(folder, num_hidden_layers=5), "target.weights_missing"),
        (lambda folder: edit(folder, intermediate_size=56), "target.unreadable"),
        (lambda folder: edit(folder, architectures=["FooForCausalLM"]), "target.architecture"),
    ],
    ids=["no config", "remote code", "spoiled", "pickle", "unknown", "a layer lacks", "other sizes", "another name"],
)
def test_a_folder_that_is_no_target_is_refused(tmp_path, spoil, code):
    random_model("llama").float().save_pretrained(tmp_path)
    assert TransformersTarget.open(tmp_path).layers == 4
    spoil(tmp_path)
    with pytest.raises(Refused) as refused:
        TransformersTarget.open(tmp_path)
    assert refused.value.refusals[0].code == code


def edit(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_numbers_that_are_none_are_refused_and_never_judged():
    model = random_model("llama")
    target = TransformersTarget(model, (1,))
    target.prefill(PROMPT)
    with torch.no_grad():
        model.model.layers[2].mlp.up_proj.weight[3, 5] = float("nan")
    with pytest.raises(Refused, match="no numbers"):
        target.prefill(PROMPT)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_sound_target_are_alike_however_they_are_asked_for(kind):
    check_rows(TransformersTarget(random_model(kind), (1,)), PROMPT, 8, "target")


class Forgetful(TransformersTarget):
    """Counts positions from 0 in every pass, as some models do when they are not told."""

    def verify(self, tokens, parents):
        self._length = 0
        return super().verify(tokens, parents)


class Narrow(TransformersTarget):
    """Right for one row, and without a state for several, as transformers' Mamba 1."""

    def verify(self, tokens, parents):
        rows = super().verify(tokens, parents)
        return rows if len(tokens) == 1 else Rows(rows.logits[:, ::-1].copy(), rows.features)


@pytest.mark.parametrize("target", [Forgetful, Narrow])
def test_a_target_that_loses_its_state_is_refused(target):
    with pytest.raises(Refused, match="does not go on from its state"):
        check_rows(target(random_model("llama"), (1,)), PROMPT, 8, "target")

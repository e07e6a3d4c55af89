"""Whatever stands in a config, reading it ends in a config or in a refusal that JSON can carry."""

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill.dflash.config import parse_config
from draftmill.dflash.config_keys import SECTIONS
from draftmill.dflash.unsupported import UNSUPPORTED
from draftmill.dflash.vendor_config import vendor_config
from draftmill.outcome import Refused
from tests.dflash.published import BOLT, MUSE, QWEN35_27B, QWEN38

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
NAMES = sorted({*BOLT, *QWEN38, *MUSE["dflash_config"], *BOLT["dflash_config"], *UNSUPPORTED, *SECTIONS})
KEYS = st.sampled_from(NAMES) | st.sampled_from(NAMES).map("dflash.{}".format) | st.text(max_size=8)


@settings(max_examples=400, deadline=None)
@given(
    base=st.sampled_from([BOLT, QWEN38, MUSE, QWEN35_27B, {}]),
    changes=st.lists(st.tuples(st.sampled_from(["", *SECTIONS]), KEYS, VALUES), max_size=4),
    causal=st.none() | st.booleans(),
)
def test_any_change_of_a_config_ends_in_a_config_or_a_refusal(
    base: dict[str, Any], changes: list[tuple[str, str, Any]], causal: bool | None
) -> None:
    content = copy.deepcopy(base)
    for section, key, value in changes:
        node = content.setdefault(section, {}) if section else content
        if isinstance(node, dict):
            node[key] = value
    try:
        config = parse_config(content, causal=causal)
    except Refused as refused:
        json.dumps([refusal.as_json() for refusal in refused.refusals], allow_nan=False)
    else:
        assert parse_config(vendor_config(config)).target_layer_ids == config.target_layer_ids

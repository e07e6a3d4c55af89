"""A product at work: it loads in llama.cpp, computes finite logits, and says the same twice."""

from pathlib import Path
from typing import Any

from draftmill.engine.process import Engine
from draftmill.intake.findings import Findings

PROMPT = "def fibonacci(n):\n"
TOKENS = 16


def generate_twice(product: Path, *, tokens: int = TOKENS) -> tuple[dict[str, Any], Findings]:
    """`tokens` greedy tokens, twice in new contexts: check.logits_not_finite, check.not_deterministic.

    What the tokens say is not judged: a random checkpoint generates too. Raises EngineError.
    """
    findings = Findings()
    with Engine(product) as engine:
        prompt = engine.tokenize([PROMPT])[0] or [0]
        # On a busy machine threads wait for each other at every layer: one is faster there, and fast enough elsewhere.
        runs = [engine.generate(prompt, tokens, threads=1) for _ in range(2)]
    if not all(run.finite for run in runs):
        findings.add(
            "check.logits_not_finite",
            "logits",
            "NaN or infinite",
            "finite",
            "The engine computes NaN or infinite logits with this product; a weight or a scale is damaged.",
        )
    elif runs[0].ids != runs[1].ids:
        findings.add(
            "check.not_deterministic",
            "greedy tokens",
            runs[1].ids,
            runs[0].ids,
            "The engine says two things for one prompt; look at the engine and the machine, not at the product.",
        )
    # No times: check.json is published, and one recipe gives one content.
    return {"prompt": prompt, "ids": runs[0].ids}, findings

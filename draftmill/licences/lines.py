"""Model lines whose licence is established by their publisher, so that no card has to be asked.

A fact of this table is true of the repository whatever its card says at the moment; a model that is not here is looked
up. Each line names its source.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """licence: the hub's id. bases: what it was made from, as its publisher says. source: where both are from."""

    licence: str
    source: str
    bases: tuple[str, ...] = ()


_LLAMA = "the licence of meta-llama's repositories"
_R1 = "deepseek-ai/DeepSeek-R1 README, section License"
_QWEN25 = "qwenlm.github.io/blog/qwen2.5: all Apache 2.0 but 3B and 72B"
_LINES: tuple[tuple[str, Line], ...] = (
    (r"meta-llama/Llama-2-\d+b(-chat)?(-hf)?", Line("llama2", _LLAMA)),
    (r"meta-llama/Meta-Llama-3-\d+B(-Instruct)?", Line("llama3", _LLAMA)),
    (r"meta-llama/(Meta-)?Llama-3\.1-\d+B(-.*)?", Line("llama3.1", _LLAMA)),
    (r"meta-llama/Llama-3\.2-\d+B(-.*)?", Line("llama3.2", _LLAMA)),
    (r"meta-llama/Llama-3\.3-\d+B(-.*)?", Line("llama3.3", _LLAMA)),
    (r"meta-llama/Llama-4-.*", Line("llama4", _LLAMA)),
    (r"lmsys/vicuna-\d+b-v1\.5(-16k)?", Line("llama2", "its model card: fine-tuned from Llama 2")),
    (r"lmsys/vicuna-\d+b-v1\.[13]", Line("llama1", "its model card: fine-tuned from LLaMA, non-commercial")),
    (r"Qwen/Qwen3-\d[\d.]*B(-.*)?", Line("apache-2.0", "qwenlm.github.io/blog/qwen3: all under Apache 2.0")),
    (r"Qwen/Qwen2\.5-((Coder|Math)-)?(0\.5|1\.5|7|14|32)B(-.*)?", Line("apache-2.0", _QWEN25)),
    (r"Qwen/Qwen2\.5-(Coder-)?3B(-.*)?", Line("qwen-research", _QWEN25)),
    (r"Qwen/Qwen2\.5-(Math-)?72B(-.*)?", Line("qwen", _QWEN25)),
    (r"deepseek-ai/DeepSeek-R1-Distill-Qwen-1\.5B", Line("mit", _R1, ("Qwen/Qwen2.5-Math-1.5B",))),
    (r"deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", Line("mit", _R1, ("Qwen/Qwen2.5-Math-7B",))),
    (r"deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", Line("mit", _R1, ("Qwen/Qwen2.5-14B",))),
    (r"deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", Line("mit", _R1, ("Qwen/Qwen2.5-32B",))),
    (r"deepseek-ai/DeepSeek-R1-Distill-Llama-8B", Line("mit", _R1, ("meta-llama/Llama-3.1-8B",))),
    (r"deepseek-ai/DeepSeek-R1-Distill-Llama-70B", Line("mit", _R1, ("meta-llama/Llama-3.3-70B-Instruct",))),
    (r"google/gemma-(1\.1-|2-|3-|3n-)?[\dE]+[bB](-.*)?", Line("gemma", "the licence of google's Gemma 1 to 3")),
    (r"mistralai/(Mistral-7B|Mixtral-8x(7|22)B|Mistral-Nemo)-.*", Line("apache-2.0", "mistral.ai's announcements")),
    (r"HuggingFaceTB/SmolLM[23]?-\d+(\.\d+)?[MB](-.*)?", Line("apache-2.0", "its model card")),
)
_COMPILED = tuple((re.compile(pattern, re.IGNORECASE), line) for pattern, line in _LINES)


def known_line(repo: str) -> Line | None:
    """The line that this owner/name is of, in full."""
    return next((line for pattern, line in _COMPILED if pattern.fullmatch(repo)), None)

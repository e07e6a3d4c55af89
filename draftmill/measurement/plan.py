"""What is to be measured, before anything runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from draftmill.host import available_memory
from draftmill.measurement.device.profiles import Device
from draftmill.measurement.prompts import Prompt
from draftmill.measurement.servers.client import Client
from draftmill.measurement.servers.flags import Drafting, Settings
from draftmill.measurement.servers.providers import Provider
from draftmill.measurement.subject import Encoded
from draftmill.outcome import Refusal, Refused

_FEWEST_TOKENS = 8
_SPARE_BYTES = 1 << 30


@dataclass(frozen=True)
class Plan:
    """One pair on one device.

    provider: the device's engine. settings: of the target alone; drafting: what the other arm adds. budget: new tokens
    a request. warm_up: requests of each arm after each start that are discarded. chat: prompts go through the target's
    chat template. together: both servers up at once, None: where memory allows. block: pairs between two restarts
    where it does not. near_tie: greatest gap of log-probabilities (nats) that still counts as a near-tie.
    """

    provider: Provider
    settings: Settings
    drafting: Drafting
    device: Device
    prompts: Sequence[Prompt]
    run: str
    budget: int = 128
    seed: int = 0
    warm_up: int = 2
    chat: bool = False
    together: bool | None = None
    block: int = 8
    near_tie: float = 0.1

    def __post_init__(self) -> None:
        if self.budget < _FEWEST_TOKENS or self.block < 1 or self.warm_up < 0 or not self.prompts:
            raise ValueError(f"a budget of at least {_FEWEST_TOKENS} tokens, a block, and a prompt are needed")

    @property
    def with_draft(self) -> Settings:
        return replace(self.settings, draft=self.drafting)

    @property
    def draft_alone(self) -> Settings:
        drafting = self.drafting
        return replace(
            self.settings,
            model=drafting.model,
            threads=drafting.threads or self.settings.threads,
            gpu_layers=self.settings.gpu_layers if drafting.gpu_layers is None else drafting.gpu_layers,
            device=drafting.device or self.settings.device,
            cache_type_k=drafting.cache_type_k,
            cache_type_v=drafting.cache_type_v,
        )

    def fits_together(self) -> bool:
        """Whether two targets and a draft leave a GiB of this machine's memory. A target counts twice: its file's pages
        are shared, but engines repack weights into memory of their own."""
        if self.together is not None:
            return self.together
        free = available_memory()
        return free is None or 2 * _size(self.settings.model) + _size(self.drafting.model) + _SPARE_BYTES < free


def encode(client: Client, plan: Plan) -> list[Encoded]:
    """The prompts as the target's ids. Raises Refused (measurement.context) with every prompt that leaves no room."""
    encoded, refusals = [], []
    for prompt in plan.prompts:
        text = client.apply_template(prompt.text) if plan.chat else prompt.text
        tokens = tuple(client.tokenize(text, add_special=True))
        needed = len(tokens) + plan.budget + plan.drafting.n_max + 1
        if needed > plan.settings.context:
            refusals.append(
                Refusal(
                    "measurement.context",
                    prompt.name,
                    needed,
                    plan.settings.context,
                    "prompt, budget and drafts do not fit: give a larger --context, or a smaller budget",
                )
            )
        encoded.append(Encoded(prompt.name, prompt.kind, tokens))
    if refusals:
        raise Refused(*refusals)
    return encoded


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0

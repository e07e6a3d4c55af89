"""What a conversion is asked to do, and how it ended: the values that cross the flow's border."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from flows.defaults import catalogue_field, hub_field, runner_field, store_field, work_field

DEFAULT_QUANTS = ("Q4_K_M",)


class Order(BaseModel):
    """One conversion. Addresses and paths say where things are found; the rest decides what is made.

    ref: owner/repo[@revision] or a folder. base: the encoding that everything else is quantized from; it is published
    too. hub: address of a hub, or file:///folder of a mirror. name: publish under owner/name instead of the source's.
    licence, licence_statement, licence_files: for a repository that does not say, or does not carry, what it should.
    licence_texts: licence's id -> files that hold its text, taken where its terms bind. derived_from, trained_for:
    models whose licences it inherits, beside those that its card names; upstream: what a package was made of. run,
    run_target: what `asked_measurement` makes a MeasurementRequest of, and the Hugging Face folder on which a package
    is run after its gate.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    ref: str
    quants: tuple[str, ...] = DEFAULT_QUANTS
    base: Literal["F16", "BF16", "F32"] = "F16"
    tokenizer_from: str | None = None
    converter: Literal["native", "stock"] = "native"
    quantizer: Literal["native", "stock"] = "native"
    name: str | None = None
    licence: str | None = None
    licence_statement: str | None = None
    licence_files: tuple[Path, ...] = ()
    licence_texts: dict[str, tuple[Path, ...]] = {}
    derived_from: tuple[str, ...] = ()
    trained_for: tuple[str, ...] = ()
    upstream: str | None = None
    runner: Literal["process", "docker"] = runner_field()
    hub: str = hub_field()
    store: str = store_field()
    work: Path = work_field()
    catalogue: Path | None = catalogue_field()
    stock_converter: Path | None = None
    stock_python: Path | None = None
    llama_quantize: str | None = None
    run: dict[str, Any] | None = None
    run_target: Path | None = None


class Ending(BaseModel):
    """How a chain ended when nothing broke. `manifest` and `places` (path -> where it is) unless it was refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["published", "already published", "refused"]
    ref: str
    sentence: str
    manifest_at: str | None = None
    manifest_key: str | None = None
    manifest: dict[str, Any] | None = None
    places: dict[str, str] = {}
    refusals: list[dict[str, Any]] = []
    jobs: list[dict[str, Any]] = []

    def markdown(self) -> str:
        """For the Prefect UI."""
        lines = [f"# {self.ref}: {self.kind}", "", self.sentence, ""]
        lines += [f"* **{r['code']}** at `{r['where']}`: {r['sentence']}" for r in self.refusals]
        lines += [f"* `{name}`: {place}" for name, place in self.places.items()]
        if self.jobs:
            lines += ["", "| job | ran | why |", "|---|---|---|"]
            lines += [f"| {j['title']} | {'no' if j['cached'] else 'yes'} | {j['reason']} |" for j in self.jobs]
        return "\n".join(lines)

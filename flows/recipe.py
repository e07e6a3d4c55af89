"""What a publication is made of, known before any work is done: the digest that a run skips by, and its parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from draftmill.digest import sha256_file, sha256_json
from draftmill.store.manifest import INHERITS, recipe_digest
from flows.code_digest import code_digest
from flows.lineage import named_licences
from flows.order import Order
from flows.stock_tools import StockTools

CONVERSION = ("download", "intake", "tokenizer", "convert", "quantize", "check")
GATE = ("download", "gate")
DRAFT = (*GATE, "intake", "dflash_convert")
CHECKPOINT = ("download", "intake", "dflash_convert")
RUN = ("measure_acceptance",)
"""The jobs of each."""

_FIELDS = {"base", "quants", "converter", "quantizer"}
_LICENCE_FIELDS = {"name", "licence", "licence_statement"}
_ANCESTORS = {"derived_from", "trained_for", "upstream"}
SHORT = 12


@dataclass(frozen=True)
class Recipe:
    """source, donor: commits; parameters: what was asked for, as far as it changes what is made; jobs: their names."""

    source: str
    parameters: dict[str, Any]
    jobs: tuple[str, ...]
    donor: str | None = None

    @property
    def code(self) -> dict[str, str]:
        return {job: code_digest(job) for job in self.jobs}

    @property
    def digest(self) -> str:
        """As the manifest has it."""
        return recipe_digest(self.source, self.parameters, self.code, self.donor)

    def parts(self) -> dict[str, str]:
        """Each thing that it depends on, by a name for people, as a short digest: says what changed since."""
        parts = {"commit": self.source, "parameters": sha256_json(self.parameters), "donor": self.donor or ""}
        parts |= {f"code of {job}": digest for job, digest in self.code.items()}
        return {name: value[:SHORT] for name, value in parts.items() if value}


def conversion_recipe(order: Order, commit: str, donor: tuple[str, str] | None) -> Recipe:
    """donor: (repository, commit) of the tokenizer that is borrowed."""
    parameters = {**asked_for(order), "donor": donor and donor[0]}
    return Recipe(commit, parameters, CONVERSION, donor[1] if donor else None)


def gate_recipe(
    order: Order, entry: str, commit: str, left_aside: Sequence[str], donor: tuple[str, str] | None = None
) -> Recipe:
    """left_aside: names of the files that the gate is not given. donor: (repository, commit) of the target whose
    vocabulary the package's GGUF carries; without one none is made."""
    gate: dict[str, Any] = {"title": entry, "left_aside": list(left_aside)}
    jobs: tuple[str, ...] = ()
    if order.run is not None:
        from flows.package_run import asked_of_run

        gate["run"], jobs = asked_of_run(order), RUN
    if donor is None:
        return Recipe(commit, gate, (*GATE, *jobs))
    return Recipe(commit, {**gate, **_of_draft(order), "donor": donor[0]}, (*DRAFT, *jobs), donor[1])


def draft_recipe(order: Order, commit: str, donor: tuple[str, str] | None) -> Recipe:
    """Of a DFlash checkpoint. donor: (repository, commit) of its target; without one nothing is made."""
    if donor is None:
        return Recipe(commit, {"donor": None}, ())
    return Recipe(commit, {**_of_draft(order), "donor": donor[0]}, CHECKPOINT, donor[1])


def ancestors_named(order: Order) -> dict[str, Any]:
    """What it was said to come from: it decides which terms bind, of which `asked_for` has what changes the files."""
    return {name: value for name, value in order.model_dump(mode="json", include=_ANCESTORS).items() if value}


def asked_for(order: Order) -> dict[str, Any]:
    """What a conversion was asked for, as far as it changes what is made."""
    parameters: dict[str, Any] = order.model_dump(mode="json", include=_FIELDS) | _of_draft(order)
    if order.quantizer == "stock":
        parameters |= StockTools(order).quantizer_digest()
    return parameters


def _of_draft(order: Order) -> dict[str, Any]:
    parameters = {"converter": order.converter, **_licences_asked_for(order)}
    return parameters | StockTools(order).converter_digest() if order.converter == "stock" else parameters


def _licences_asked_for(order: Order) -> dict[str, Any]:
    parameters: dict[str, Any] = order.model_dump(mode="json", include=_LICENCE_FIELDS)
    if order.licence_files:
        parameters["licence_files"] = {path.name: sha256_file(path) for path in order.licence_files}
    if inherited := named_licences(order):
        parameters[INHERITS] = {id: {path.name: sha256_file(path) for path in files} for id, files in inherited.items()}
    return parameters

"""Where a GGUF comes from: the general.* keys, and the group draftmill.* for what the standard has no key for.

Keys: ggml's docs/gguf.md and gguf-py/gguf/constants.py. The group draftmill.*: `version` and `converter` (who wrote the
file), `recipe` (digest of the recipe in the manifest), `source.commit`, `pard_token` (a PARD draft's mask id).
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

import draftmill
from draftmill.configuration import PUBLIC_HUB
from draftmill.gguf.naming import name_parts
from draftmill.intake.bounded_json import read_object
from draftmill.outcome import Refusal, Refused

if TYPE_CHECKING:
    from gguf import GGUFWriter, Metadata

ORIGIN = re.compile(
    r"draftmill\.|general\.(?!architecture$|type$|file_type$|quantization_version$|alignment$|sampling\.)"
)
"""Keys that say where a file comes from; the two converters may differ in these and no others."""
_GENERATION_CONFIG_LIMIT = 1 << 20
_SAMPLING = {
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "temperature": "temp",
    "repetition_penalty": "penalty_repeat",
}
"""Key of generation_config.json -> of general.sampling."""


class Provenance(BaseModel):
    """What the flow knows of a model's origin; None where it is not known.

    repo: owner/name on the hub; name: what it is published as, which may be another name. commit: 40 hex digits.
    licence: SPDX id where there is one. base_models: owner/name each. recipe: digest of the manifest's recipe.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    repo: str | None = None
    commit: str | None = None
    url: str | None = None
    licence: str | None = None
    licence_name: str | None = None
    licence_link: str | None = None
    base_models: tuple[str, ...] = ()
    recipe: str | None = None


def describe(provenance: Provenance, weights: int, model: Path | None = None) -> "Metadata":
    """The general.* keys. model: a folder whose generation_config.json gives the sampling defaults.

    Raises Refused (convert.generation_config) when a default there is not a number.
    """
    from gguf import Metadata

    owner, slash, _ = (provenance.repo or "").rpartition("/")
    parts = name_parts(f"{owner}{slash}{provenance.name}", weights)
    return Metadata(
        name=Metadata.id_to_title(parts.name),
        organization=Metadata.id_to_title(parts.organization) if parts.organization else None,
        basename=parts.base,
        finetune=parts.finetune,
        version=parts.version,
        size_label=parts.size,
        license=provenance.licence,
        license_name=provenance.licence_name,
        license_link=provenance.licence_link,
        source_url=provenance.url or _page(provenance),
        source_repo_url=_page(provenance),
        base_models=[_base_model(repo) for repo in provenance.base_models] or None,
        **{f"sampling_{key}": value for key, value in sampling_defaults(model).items()},
    )


def sampling_defaults(model: Path | None) -> dict[str, Any]:
    """general.sampling.* from generation_config.json, as llama.cpp's converter takes them."""
    path = model / "generation_config.json" if model else None
    if path is None or not path.is_file():
        return {}
    given = read_object(path, path.name, _GENERATION_CONFIG_LIMIT)
    found = {ours: given[theirs] for theirs, ours in _SAMPLING.items() if given.get(theirs) is not None}
    for key, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or (key == "top_k" and type(value) is not int):
            raise Refused(
                Refusal(
                    "convert.generation_config",
                    f"{path.name}:{key}",
                    str(value)[:80],
                    "a number",
                    "A sampling default is not a number; mend generation_config.json at its source, or remove it.",
                )
            )
    return found


def own_keys(provenance: Provenance, converter: str, config: dict[str, Any]) -> dict[str, str | int]:
    """Key -> value of what the standard keys do not hold; only what is known."""
    pard_token = config.get("pard_token")
    keys: dict[str, str | int | None] = {
        "general.source.huggingface.repository": provenance.repo,
        "draftmill.version": draftmill.__version__,
        "draftmill.converter": converter,
        "draftmill.recipe": provenance.recipe,
        "draftmill.source.commit": provenance.commit,
        "draftmill.pard_token": pard_token if type(pard_token) is int and 0 <= pard_token < 1 << 32 else None,
    }
    return {key: value for key, value in keys.items() if value is not None}


def add_own_keys(writer: "GGUFWriter", keys: dict[str, str | int]) -> None:
    for key, value in keys.items():
        if isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_string(key, value)


def _page(provenance: Provenance) -> str | None:
    return f"{PUBLIC_HUB}/{provenance.repo}" if provenance.repo else None


def _base_model(repo: str) -> dict[str, str]:
    from gguf import Metadata

    owner, _, name = repo.rpartition("/")
    entry = {"name": Metadata.id_to_title(name)}
    if owner:
        entry |= {"organization": Metadata.id_to_title(owner), "repo_url": f"{PUBLIC_HUB}/{repo}"}
    return entry

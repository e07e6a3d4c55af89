"""What a publication is made of, known before any work is done: the digest that a run skips by, and its parts."""

from dataclasses import dataclass
from typing import Any

from draftmill.digest import sha256_json
from draftmill.store.manifest import recipe_digest
from flows.code_digest import code_digest

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

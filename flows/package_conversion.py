"""A DFlash draft, package or checkpoint, as a GGUF with its target's vocabulary, where the order names the target.

`tokenizer_from` is the target here: its files are downloaded, and the job proves that the vocabulary written is theirs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from draftmill.gguf.naming import gguf_name
from draftmill.outcome import Refused
from draftmill.store.manifest import Donor, File, Role
from flows.chain import Done, JobEnded, Step
from flows.conversion_steps import Listing, Steps
from flows.licences import Terms, terms_of_order
from flows.lineage import trace_lineage
from flows.order import Order
from flows.publication import source_of
from flows.recipe import Recipe

EXACT = "Holds the {0}'s draft as a GGUF for llama.cpp, of which every value is the {0}'s."
INEXACT = "Holds the {0}'s draft as a GGUF for llama.cpp; the account says what was rounded, and by how much."


@dataclass(frozen=True)
class Converted:
    """The job that ended well, under which terms its files may be published, and whose vocabulary they hold."""

    done: Done
    terms: Terms
    donor: Donor

    @property
    def files(self) -> tuple[File, ...]:
        roles: dict[bool, Role] = {True: "model", False: "evidence"}
        return tuple(
            File(path=each.path, size=each.size, sha256=each.sha256, role=roles[each.path.endswith(".gguf")])
            for each in self.done.finished.result.outputs
        )

    def sentence(self, source: str) -> str:
        """source: package or checkpoint."""
        return (EXACT if self.done.facts["exact"] else INEXACT).format(source)


def convert_draft(
    order: Order,
    entry: str,
    listing: Listing,
    donor: Listing,
    draft: Done,
    recipe: Recipe,
    steps: Steps,
    do: Callable[[Step], Done],
) -> Converted:
    """draft: downloaded. Raises JobEnded, and Refused where the terms of the licences cannot be met."""
    assert order.tokenizer_from  # noqa: S101 - that is where the donor is from
    files = do(steps.download(order.tokenizer_from, donor))
    do(steps.intake(order.tokenizer_from, files, "donor"))
    lineage = trace_lineage(order, listing, donor, steps, do)
    # Licences look at how a name begins, which neither size nor encoding decides.
    names = [gguf_name(entry, 10**9, "F16")]
    terms = terms_of_order(order, listing, lineage, draft.finished.out, names, (donor, files.finished.out))
    provenance: dict[str, Any] = {
        "name": entry.partition("/")[2],
        "repo": listing["repo"],
        "commit": listing["commit"],
        "licence": terms.licence.id,
        "base_models": listing["base_models"],
        "recipe": recipe.digest,
    }
    done = do(steps.dflash_convert(draft, files, provenance, entry))
    account = next(each for each in done.finished.result.outputs if not each.path.endswith(".gguf"))
    return Converted(done, terms, Donor(source=source_of(donor, files, order.hub), proof=account.sha256))


def convert_package(
    order: Order,
    entry: str,
    listing: Listing,
    donor: Listing,
    package: Done,
    recipe: Recipe,
    steps: Steps,
    do: Callable[[Step], Done],
) -> Converted | str:
    """As `convert_draft`, and a sentence where it is refused. Raises JobEnded when it broke."""
    try:
        return convert_draft(order, entry, listing, donor, package, recipe, steps, do)
    except JobEnded as ended:
        if ended.result.outcome != "refused":
            raise
        return _refused([(each.code, each.sentence) for each in ended.result.refusals])
    except Refused as refused:
        return _refused([(each.code, each.sentence) for each in refused.refusals])


def _refused(reasons: list[tuple[str, str]]) -> str:
    (code, sentence), *more = reasons
    return f"Holds no GGUF of the package: {code}: {sentence}" + (f" ({len(more)} more reasons)" if more else "")

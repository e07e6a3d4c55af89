"""A drafter's lineage, as its card, its row of the catalogue and the hub tell it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from draftmill.hub.ref import is_repo_name
from draftmill.licences.lineage import Ancestor, Card, Start, trace
from draftmill.licences.terms import terms_of
from flows.chain import Done, JobEnded, Step
from flows.conversion_steps import Listing, Steps
from flows.order import Order

NOT_PERMITTED = 77


def trace_lineage(
    order: Order, listing: Listing, donor: Listing | None, steps: Steps | None, do: Callable[[Step], Done] | None
) -> tuple[Ancestor, ...]:
    """steps, do: to ask the hub for cards that no known line answers for; without them, or for a folder, nobody is
    asked. Raises JobEnded when the hub cannot be asked at the moment: what it says may change what has to travel."""

    def cards(name: str) -> Card | None:
        if donor and name == donor["repo"]:
            return _card(donor)
        # A card is a stranger's text: a path in it is none of this machine's.
        if steps is None or do is None or listing["repo"] is None or not is_repo_name(name):
            return None
        try:
            return _card(do(steps.resolve(name, "tokenizer")).facts["listing"])
        except JobEnded as ended:
            if ended.result.outcome == "refused" or ended.result.exit_code == NOT_PERMITTED:
                return None
            raise

    starts = [Start(name, "base", "its card") for name in listing["base_models"]]
    starts += _named(order)
    if donor and donor["repo"]:
        starts.append(Start(donor["repo"], "donor", "the order"))
    return trace(starts, cards, listing["repo"])


def named_licences(order: Order) -> dict[str, tuple[Path, ...]]:
    """Licences whose terms bind by what the order itself names, and the files of their texts: what is published
    depends on them, and they are known before anything is asked."""
    if order.licence_statement:
        return {}
    donor = [Start(order.tokenizer_from.partition("@")[0], "donor", "the order")] if order.tokenizer_from else []
    named = [order.licence, *(ancestor.licence for ancestor in trace([*_named(order), *donor]))]
    binding = {terms.id for licence in named if (terms := terms_of(licence)) and terms.binds}
    return {id: order.licence_texts.get(id, ()) for id in sorted(binding)}


def _named(order: Order) -> Iterator[Start]:
    yield from (Start(name, "base", "the catalogue") for name in order.derived_from)
    if order.upstream:
        yield Start(order.upstream, "upstream", "the catalogue")
    yield from (Start(name, "target", "the catalogue") for name in order.trained_for)


def _card(listing: dict[str, Any]) -> Card:
    return Card(listing["licence"], tuple(listing["base_models"]), listing["commit"])

"""What the catalogue of whoever runs an order knows of its repository, beside what the order itself says."""

from draftmill.catalogue.catalogue import load_catalogue
from draftmill.hub.ref import parse_ref
from draftmill.outcome import Refused
from flows.order import Order


def catalogued(order: Order) -> Order:
    """The order with its row's lineage, and the catalogue's texts of licences. Its donor counts once it is known that
    the repository ships no tokenizer. Raises BadConfiguration with every wrong line of the file."""
    if order.catalogue is None:
        return order
    catalogue = load_catalogue(order.catalogue)
    try:
        known = catalogue.drafter(parse_ref(order.ref).repo or "")
    except Refused:  # the chain tells it
        return order
    return order.model_copy(
        update={
            "derived_from": tuple(dict.fromkeys([*order.derived_from, *known.derived_from])),
            "trained_for": tuple(dict.fromkeys([*order.trained_for, *known.trained_for])),
            "upstream": order.upstream or known.upstream,
            "licence_texts": dict(catalogue.licences) | order.licence_texts,
        }
    )

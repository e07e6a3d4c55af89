"""Route `gguf_borrowed`: PARD-2. As `gguf`, with the tokenizer of the donor that the catalogue names."""

from draftmill.outcome import Refusal, Refused
from flows.order import Order
from flows.routes import gguf
from flows.routes.gguf import kind, needs, pairs, recipe, run, selection
from flows.routes.route import Setting, Subject

__all__ = ["kind", "needs", "order", "pairs", "recipe", "run", "selection"]


def order(subject: Subject, setting: Setting) -> Order:
    """Raises Refused("catalogue.no_donor")."""
    donor = subject.drafter.donor
    if donor is None:
        raise Refused(
            Refusal(
                "catalogue.no_donor",
                f"drafters.{subject.repo}.donor",
                None,
                "owner/repo@revision",
                "The repository ships no tokenizer, and the catalogue does not say whose it borrows. Add the target "
                "that its card or its publisher names, at a commit.",
            )
        )
    return gguf.order(subject, setting).model_copy(update={"tokenizer_from": donor})

"""Endings that every kind of store has, worded once."""

from draftmill.outcome import InputOutput, Temporary


def changed(where: str) -> Temporary:
    return Temporary(
        f"{where} was changed by somebody else meanwhile; read it again and repeat.", code="store.changed", where=where
    )


def missing(where: str) -> InputOutput:
    return InputOutput(
        f"{where} is not there. See what is there with the store's listing, or publish it again.",
        code="store.missing",
        where=where,
    )


def damaged(where: str, measured: str, recorded: str) -> InputOutput:
    return InputOutput(
        f"{where} is damaged: its bytes have sha256 {measured}, recorded was {recorded}. "
        "Delete it and publish again from the source.",
        code="store.damaged",
        where=where,
    )

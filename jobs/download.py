"""Job `download`: the files of a listing, each verified as it streams; continues in an out/ that a killed run left.

Parameters: listing (the fact of `resolve`), and a source as in `resolve`. Secret: hf_token.
Facts: received_bytes (over the wire or copied), kept_bytes (there already and verified).
"""

from pydantic import ValidationError

from draftmill.hub.download import download
from draftmill.hub.listing import Listing
from draftmill.outcome import BadConfiguration
from jobs.contract import Job, main
from jobs.resolve import check_parameters, source_of

KNOWN = {"listing", "endpoint", "mirror"}


def work(job: Job) -> None:
    check_parameters(job, KNOWN)
    try:
        listing = Listing.model_validate(job.parameters.get("listing"))
    except ValidationError as error:
        sentence = f"The parameter listing is not one of a resolve job: {error.error_count()} errors."
        raise BadConfiguration(sentence, code="hub.parameters") from None
    outcome = download(listing, source_of(job), job.out, progress=job.progress)
    job.fact("received_bytes", outcome.received)
    job.fact("kept_bytes", outcome.kept)


if __name__ == "__main__":
    main("download", work)

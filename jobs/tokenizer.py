"""Job `tokenizer`: settles whose tokenizer a model is converted with, and proves that it fits.

Inputs: model, optional donor. Parameters: donor_source ("owner/name@commit"; required with a donor), optional
base_models (what the model's card says it was made from). Outputs: exactly the tokenizer files to use, and proof.json.
Facts: proof.
"""

import json
from importlib.metadata import version

from draftmill.outcome import BadConfiguration
from draftmill.tokenizers.borrowing import borrow
from draftmill.whole_file import write_whole
from jobs.contract import Job, main


def work(job: Job) -> None:
    donor = job.request.inputs.get("donor")
    source = job.parameters.get("donor_source")
    base_models = job.parameters.get("base_models") or []
    if (donor is None) != (source is None):
        raise BadConfiguration(
            "A donor folder and its donor_source belong together; give both or neither.", code="tokenizer.donor_source"
        )
    job.tool("tokenizers", version("tokenizers"))
    borrowed = borrow(job.input("model"), donor, source, base_models=base_models)
    job.fact("proof", borrowed.proof)
    for name, path in borrowed.files.items():
        write_whole(job.out / name, path.read_bytes())
    write_whole(job.out / "proof.json", json.dumps(borrowed.proof, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main("tokenizer", work)

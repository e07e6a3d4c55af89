"""llama.cpp's own converter in a job, which is recorded as a tool of it."""

from draftmill.gguf.stock_script import StockScript, stock_script
from jobs.contract import Job


def stock_converter(job: Job) -> StockScript:
    """What the parameters stock_converter and stock_python name, else the environment's. Raises BadConfiguration."""
    script = stock_script(job.parameters.get("stock_converter"), job.parameters.get("stock_python"))
    job.tool("convert_hf_to_gguf", script.digest[:12], script.digest)
    return script

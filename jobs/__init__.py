"""One module a job: `python -m jobs.<name> /job` reads request.json and writes out/ and result.json."""

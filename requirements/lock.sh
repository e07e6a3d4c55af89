#!/bin/sh
# Makes the hash-pinned lock files anew from pyproject.toml and the .in files. Needs uv.
set -eu
cd "$(dirname "$0")/.."
compile() { uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-emit-find-links --python-version 3.11 \
    --custom-compile-command "requirements/lock.sh" "$@"; }
compile --extra pipeline --extra dev pyproject.toml -o requirements/dev.txt
compile --extra pipeline pyproject.toml -c requirements/dev.txt -o requirements/pipeline.txt
compile --extra engine pyproject.toml -c requirements/dev.txt -o requirements/jobs.txt
compile requirements/build.in -c requirements/dev.txt -o requirements/build.txt
compile requirements/target.in -c requirements/dev.txt -o requirements/target.txt
compile --no-deps requirements/inputs.in -o requirements/inputs.txt

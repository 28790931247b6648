#!/bin/sh
# Renews requirements/*.txt: hash-pinned, for every supported Python and Linux machine, without addresses. Needs `uv`.
set -eu
cd "$(dirname "$0")/.."

lock() {
    output=$1
    shift
    uv pip compile pyproject.toml "$@" --upgrade --universal --python-version 3.11 --fork-strategy fewest \
        --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --quiet --output-file "$output"
}

lock requirements/core.txt
lock requirements/dev.txt --group dev --constraint requirements/core.txt

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

lock requirements/core.txt --group build
# Tests run every extra that needs neither a GPU nor torch.
lock requirements/dev.txt --overrides tools/lock_overrides.txt --group dev --extra agent --extra local-model --extra report --constraint requirements/core.txt

#!/bin/sh
# Makes the virtual environment named by the first argument: pinned packages and ptxbench itself, editable. The second
# argument is `core`, what ptxbench itself needs, or `dev` (as when left out): that and what its tests and checks need.
# Quick and without effect when it is already there for the present requirement files.
set -eu
cd "$(dirname "$0")/.."
venv=${1:-.venv}
kind=${2:-dev}

die() {
    printf 'error: %s\nremedy: %s\n' "$1" "$2" >&2
    exit 2
}

wanted=$(cat requirements/*.txt pyproject.toml | sha256sum | cut -d ' ' -f 1)
there() {
    [ -f "$venv/.ptxbench-$1" ] && [ "$(cat "$venv/.ptxbench-$1")" = "$wanted" ]
}
if there "$kind" || there dev; then
    exit 0
fi

for tool in gcc g++; do
    command -v "$tool" >/dev/null 2>&1 ||
        die "$tool is missing; nvcc needs it." "Install it, for example: apt-get install g++ (Debian, Ubuntu) or dnf install gcc-c++ (Fedora)."
done

# None yet, or one whose making was interrupted.
if [ ! -f "$venv/pyvenv.cfg" ] || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    python=
    for candidate in ${PYTHON:-} python3 python3.12 python3.11 python3.13; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            python=$candidate
            break
        fi
    done
    [ -n "$python" ] || die "no Python >= 3.11 was found as python3, python3.12, python3.11 or python3.13." \
        "Install one, for example: apt-get install python3 python3-venv; or name it: make PYTHON=/path/to/python."
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || die "$python cannot make virtual environments." \
        "Install its venv package, for example: apt-get install python3-venv."
    echo "setting up $venv with $("$python" --version) (once; about a minute)"
    "$python" -m venv "$venv"
fi

PIP_REQUIRE_VIRTUALENV=1 # whatever $venv turns out to be, the machine's own Python is left alone
export PIP_REQUIRE_VIRTUALENV
"$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check --no-input --no-compile \
    --no-deps --require-hashes --requirement "requirements/$kind.txt"
"$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check --no-input --no-compile \
    --no-deps --no-build-isolation --editable .
printf '%s\n' "$wanted" >"$venv/.ptxbench-$kind.part"
mv "$venv/.ptxbench-$kind.part" "$venv/.ptxbench-$kind"

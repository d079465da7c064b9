#!/bin/sh
# Prints the paths of two interpreters, as PATH would list them: one with transformers 4, one
# with transformers 5, each beside a PyTorch of its own. They are installed below .cache where
# they are absent; only the paths go to stdout.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
paths=
for major in 4 5; do
    venv=$root/.cache/transformers-$major
    if ! [ -e "$venv/ready" ]; then
        echo "gpurun: installing transformers $major into $venv" >&2
        python3 -m venv --clear "$venv" >&2
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
            torch numpy accelerate peft "transformers>=$major,<$((major + 1))" >&2
        : >"$venv/ready"
    fi
    paths=${paths:+$paths:}$venv/bin/python
done
echo "$paths"

#!/bin/sh
# Prints the path of a Python interpreter that has PyTorch, and installs PyTorch
# where there is none. Only the path goes to stdout.
#
# Order: $PYTHON (which must have it), the active virtual environment, python3
# and python on PATH, /usr/bin/python3, the repository's own .venv. Else, as root
# on Debian and its kin, the distribution's python3-torch; else pip into .venv.
# Exit code 2: there is none, and none can be installed.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd) || exit 2
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

die() { # error, hint
    echo "gpurun: error: $1" >&2
    echo "gpurun: hint: run $2" >&2
    exit 2
}

# run DESCRIPTION COMMAND...: says what it does; where that fails, why is the
# last line that the command printed.
run() {
    echo "gpurun: $1" >&2
    shift
    "$@" >"$scratch/log" 2>&1 </dev/null && return
    why=$(grep -v '^[[:space:]]*$' "$scratch/log" | tail -n 1)
    return 1
}

# has_torch PYTHON: only an import proves that a PyTorch works. It takes a second
# or more, so what passed once is remembered in .cache by its file and time.
# On success origin is the file of the torch package.
has_torch() {
    [ -n "$1" ] && [ -x "$1" ] || return 1
    origin=$("$1" -c '
import importlib.util, os, sys
specs = [importlib.util.find_spec(name) for name in ("torch", "numpy")]
if not all(spec and spec.origin for spec in specs): sys.exit(1)
key = "".join(f"{path} {os.stat(path).st_mtime_ns}\n" for path in [sys.executable, *(spec.origin for spec in specs)])
cache = os.path.join(sys.argv[1], ".cache", "python")
try:
    known = open(cache).read() == key
except OSError:
    known = False
if not known:
    import torch.distributed
    torch.zeros(1).numpy()
    if not torch.distributed.is_available(): sys.exit(1)
    try:
        os.makedirs(os.path.dirname(cache), exist_ok=True)
        partial = f"{cache}.{os.getpid()}"
        with open(partial, "w") as file: file.write(key)
        os.replace(partial, cache)
    except OSError:
        pass
print(specs[0].origin)' "$root" 2>"$scratch/import" </dev/null)
}

# found PYTHON: prints it and ends.
found() {
    case $origin in
    /usr/lib/python3/dist-packages/*) fast_blas ;;
    esac
    echo "$1"
    exit 0
}

# Debian's PyTorch calls whichever BLAS the system has chosen. With the reference
# implementation a training step takes ten times as long.
blas=libblas.so.3-$(uname -m)-linux-gnu
slow_blas() {
    case $(readlink "/etc/alternatives/$blas") in
    */blas/libblas.so.3) return 0 ;;
    esac
    return 1
}

fast_blas() {
    slow_blas || return 0
    if can_apt; then
        openblas=/usr/lib/${blas#libblas.so.3-}/openblas-pthread/libblas.so.3
        [ -e "$openblas" ] || apt_install libopenblas0-pthread
        if slow_blas; then
            run "selecting OpenBLAS" update-alternatives --set "$blas" "$openblas"
        fi
    fi
    if slow_blas; then
        echo "gpurun: warning: PyTorch runs on the reference BLAS and is slow; libopenblas0-pthread makes it fast" >&2
    fi
}

can_apt() {
    [ "$(id -u)" -eq 0 ] && [ -e /etc/debian_version ] && command -v apt-get >/dev/null
}

apt_install() {
    run "updating the package lists" env DEBIAN_FRONTEND=noninteractive apt-get -q update
    run "installing $*" env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install "$@"
}

# candidates: the interpreters to try, one a line, best first.
candidates() {
    [ -z "${VIRTUAL_ENV:-}" ] || echo "$VIRTUAL_ENV/bin/python"
    (
        IFS=:
        set -f
        for folder in $PATH; do
            echo "$folder/python3"
            echo "$folder/python"
        done
    )
    echo /usr/bin/python3
    echo "$root/.venv/bin/python"
}

make_venv() {
    venv=$root/.venv
    base=$(command -v python3) || die "no python3 on PATH" "apt-get install python3-torch libopenblas0-pthread as root"
    "$base" -c 'import ensurepip, venv' 2>/dev/null </dev/null ||
        die "no PyTorch, and $base cannot make a virtual environment" "apt-get install python3-venv as root, or set PYTHON to an interpreter that has torch"
    if ! [ -x "$venv/bin/pip" ]; then
        run "making $venv" "$base" -m venv --clear "$venv" || die "cannot make $venv: $why" "$base -m venv $venv"
    fi
    run "installing torch and numpy into $venv" "$venv/bin/python" -m pip install --disable-pip-version-check torch numpy ||
        die "cannot install torch into $venv: $why" "$venv/bin/python -m pip install torch numpy"
}

if [ -n "${PYTHON:-}" ]; then
    given=$(command -v "$PYTHON") || die "PYTHON=$PYTHON: no such program" "again with PYTHON set to an interpreter that has torch, or without it"
    has_torch "$given" || die "PYTHON=$PYTHON cannot import torch and numpy" "$PYTHON -m pip install torch numpy"
    found "$given"
fi

candidates | awk '!seen[$0]++' >"$scratch/candidates"
while read -r candidate; do
    if has_torch "$candidate"; then
        found "$candidate"
    fi
done <"$scratch/candidates"

if can_apt; then
    if apt_install python3-torch python3-numpy libopenblas0-pthread && has_torch /usr/bin/python3; then
        found /usr/bin/python3
    fi
    echo "gpurun: no usable python3-torch from apt-get${why:+: $why}" >&2
fi

make_venv
has_torch "$root/.venv/bin/python" ||
    die "$root/.venv cannot import torch: $(tail -n 1 "$scratch/import")" "rm -r $root/.venv, then make test"
found "$root/.venv/bin/python"

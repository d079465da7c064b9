#!/bin/sh
# Installs what tests on screens, by cron, under mpirun and in containers need, where it is missing and can be
# had: tmux, Chromium, cron, Open MPI, podman and Lmod, of Debian's packages, as root. Elsewhere those tests skip themselves.
set -u

missing=""
command -v tmux >/dev/null || missing="tmux"
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || missing="$missing chromium"
command -v cron >/dev/null || missing="$missing cron"
command -v podman >/dev/null || missing="$missing podman runc"
[ -e /usr/share/lmod ] || missing="$missing lmod"
command -v mpirun >/dev/null || missing="$missing openmpi-bin"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "gpurun: warning: no $missing here: tests are skipped" >&2
    exit 0
fi
echo "gpurun: installing $missing" >&2
export DEBIAN_FRONTEND=noninteractive
# The lists may be old, or not there at all.
# shellcheck disable=SC2086 # each word is a package
apt-get install -qq -y --no-install-recommends $missing >/dev/null 2>&1 </dev/null ||
    { apt-get update -qq && apt-get install -qq -y --no-install-recommends $missing; } >/dev/null 2>&1 </dev/null ||
    echo "gpurun: warning: cannot install $missing: tests are skipped" >&2
exit 0

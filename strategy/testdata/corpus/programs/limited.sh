#!/bin/sh
# Run a command under a memory limit of its own, in a cgroup of version 1.
#   limited.sh BYTES COMMAND...
group=/sys/fs/cgroup/memory/corpus-$$
mkdir "$group"
echo "$1" >"$group/memory.limit_in_bytes"
shift
( sh -c 'echo $PPID' >"$group/cgroup.procs"; exec "$@" )
code=$?
if test -n "$KERNEL_LOG"; then dmesg | grep "corpus-$$" | tail -n 4; dmesg | grep 'Killed process' | tail -n 1; fi
if test -n "$COUNTERS"; then echo "memory.oom_control:"; cat "$group/memory.oom_control"; fi
rmdir "$group"
exit $code

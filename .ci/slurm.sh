#!/bin/bash
# A real Slurm of three nodes on this machine, for the tests. A node is a network, a host name
# and a /tmp of its own; what Slurm needs lies in a copy-on-write view of this machine's
# files, which only they see.
#   .ci/slurm.sh build           gets Debian's packages of Slurm, once
#   .ci/slurm.sh up              starts it, and builds it before where that was not done
#   .ci/slurm.sh x COMMAND       runs a shell's command line where sbatch works
#   .ci/slurm.sh on n2 COMMAND   runs it on a node
#   .ci/slurm.sh cut n2          takes a node off the network;      heal n2     puts it back
#   .ci/slurm.sh isolate n2 n3   keeps nodes from each other only;  join n2 n3  ends that
#   .ci/slurm.sh down            ends all of it; what was built stays
# What is built lies in the user's cache, and what is up in the folder SLURM_RUN, so that several
# can be. Commands run in /shared, which all nodes have, and which is share in SLURM_RUN. Needs
# root, Debian and overlayfs; where that cannot be had, build and up say why and end with 3.
# SLURM_OWNER is a process with whose end all of it ends at the latest; SLURMD_TIMEOUT is after
# how many seconds Slurm gives a silent node up; SLURM_EXTRA are more lines of slurm.conf.
set -eu
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/gpurun/slurm
LAB=${SLURM_RUN:-$CACHE/up}
ROOT=$LAB/root
NODES="1 2 3"

unable() {
    echo "no Slurm here: $*" >&2
    exit 3
}

# inside runs a command in the namespaces of all nodes.
inside() { cd / && nsenter -t "$(cat "$LAB/pid")" -m -n -u -p "$@"; }

# view shows this machine's files, and what was changed of them in a folder.
view() {
    mkdir -p "$1/upper" "$1/work" "$1/root"
    mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
}

build() {
    [ "$(id -u)" = 0 ] || unable "it needs root"
    command -v apt-get >/dev/null || unable "its packages are Debian's"
    mkdir -p "$CACHE"
    exec 9>"$CACHE/lock"
    flock 9
    [ ! -e "$CACHE/built" ] || return 0
    rm -rf "$CACHE/upper" "$CACHE/work"
    unshare -m "$0" _install >"$CACHE/build.log" 2>&1 || unable "$(tail -n 1 "$CACHE/build.log")"
    touch "$CACHE/built"
}

_install() {
    ROOT=$CACHE/root
    view "$CACHE"
    mount -t proc proc "$ROOT/proc"
    mount --rbind /dev "$ROOT/dev"
    printf '#!/bin/sh\nexit 101\n' >"$ROOT/usr/sbin/policy-rc.d" # no daemon is started
    chmod +x "$ROOT/usr/sbin/policy-rc.d"
    export DEBIAN_FRONTEND=noninteractive
    set -- slurmd slurmctld slurm-client iproute2 hostname openmpi-bin
    # The lists may be old, or not there at all.
    chroot "$ROOT" apt-get install -qq -y --no-install-recommends "$@" </dev/null ||
        { chroot "$ROOT" apt-get update -qq && chroot "$ROOT" apt-get install -qq -y --no-install-recommends "$@" </dev/null; }
}

up() {
    build
    down
    mkdir -p "$LAB/share"
    setsid unshare -m -n -u -p -f --kill-child --mount-proc "$0" _nodes >"$LAB/up.log" 2>&1 9>&- </dev/null &
    above=$!
    for _ in $(seq 300); do
        [ -e "$LAB/ready" ] && break
        [ -d /proc/$above ] || unable "$(tail -n 1 "$LAB/up.log")"
        sleep 0.1
    done
    [ -e "$LAB/ready" ] || unable "its nodes did not come up: $(tail -n 1 "$LAB/up.log")"
    tr -d ' ' <"/proc/$above/task/$above/children" >"$LAB/pid"
    if [ -n "${SLURM_OWNER:-}" ]; then
        setsid sh -c 'tail --pid="$1" -f /dev/null; exec "$0" down' "$0" "$SLURM_OWNER" >/dev/null 2>&1 9>&- </dev/null &
    fi
}

_nodes() {
    cp -a "$CACHE/upper" "$LAB" # its layers may not lie in each other
    view "$LAB"
    mount -t proc proc "$ROOT/proc"
    mount --rbind /dev "$ROOT/dev"
    mount --rbind /sys "$ROOT/sys"
    mkdir -p "$ROOT/run/netns" "$ROOT/shared"
    mount -t tmpfs none "$ROOT/run/netns"
    mount --bind "$LAB/share" "$ROOT/shared"
    hostname ctl
    network
    configure
    chroot "$ROOT" slurmctld -i
    for n in $NODES; do
        mkdir -m 1777 "$LAB/tmp.n$n"
        nsenter --net="$ROOT/run/netns/n$n" unshare -u -m sh -c "hostname n$n; mount --bind '$LAB/tmp.n$n' '$ROOT/tmp'; exec chroot '$ROOT' slurmd -N n$n"
    done
    until [ "$(chroot "$ROOT" sinfo -h -N -p main -t idle | wc -l)" = 3 ]; do sleep 0.1; done
    touch "$LAB/ready"
    sleep infinity
}

network() {
    ip() { chroot "$ROOT" /sbin/ip "$@"; }
    ip link set lo up
    ip link add br0 type bridge
    ip addr add 10.77.0.254/24 dev br0
    ip link set br0 up
    printf '127.0.0.1 localhost\n10.77.0.254 ctl\n' >"$ROOT/etc/hosts"
    for n in $NODES; do
        ip netns add "n$n"
        ip link add "v$n" type veth peer name eth0 netns "n$n"
        ip link set "v$n" master br0 up
        ip -n "n$n" addr add "10.77.0.$n/24" dev eth0
        ip -n "n$n" link set eth0 up
        ip -n "n$n" link set lo up
        echo "10.77.0.$n n$n" >>"$ROOT/etc/hosts"
    done
}

configure() {
    mkdir -p "$ROOT/var/spool/slurm" "$ROOT/etc/slurm" "$ROOT/var/log"
    for g in 0 1; do mknod "$ROOT/var/gpu$g" c 1 3; done # promised, and not there
    echo "NodeName=n[1-3] Name=gpu File=/var/gpu[0-1]" >"$ROOT/etc/slurm/gres.conf"
    cat >"$ROOT/etc/slurm/slurm.conf" <<C
ClusterName=lab
SlurmctldHost=ctl
SlurmUser=root
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SlurmdSpoolDir=/var/spool/slurmd-%n
StateSaveLocation=/var/spool/slurm
SlurmdLogFile=/var/log/slurmd-%n.log
SlurmctldLogFile=/var/log/slurmctld.log
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout=${SLURMD_TIMEOUT:-300}
KillWait=30
MinJobAge=3600
AuthInfo=cred_expire=5
SchedulerParameters=batch_sched_delay=1,sched_interval=2,bf_interval=2
GresTypes=gpu
NodeName=n[1-3] CPUs=12 RealMemory=16000 Gres=gpu:2 State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=n[1-3] Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=40
PartitionName=urgent Nodes=n[1-3] MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
${SLURM_EXTRA:-}
C
    # Slurm 23 and later look for cgroups by themselves.
    if [ "$(chroot "$ROOT" slurmctld -V | sed 's/[^0-9]*//; s/\..*//')" -lt 23 ]; then
        echo "TaskPlugin=task/none" >>"$ROOT/etc/slurm/slurm.conf"
    else
        echo "CgroupPlugin=disabled" >"$ROOT/etc/slurm/cgroup.conf"
    fi
}

down() {
    [ -e "$LAB/pid" ] || return 0
    first=$(cat "$LAB/pid")
    # The number may be another's by now.
    if grep -qsz "^_nodes" "/proc/$first/cmdline"; then kill -9 "$first"; fi
    rm -rf "$LAB"
}

verb=${1:-help}
shift || true
case $verb in
build | up | down | _install | _nodes) $verb ;;
x) inside chroot "$ROOT" bash -c "cd /shared && $*" ;;
on)
    node=$1
    shift
    inside sh -c 'exec nsenter -t "$(cat "$0/run/slurmd-$1.pid")" -m -n -u -r -w bash -c "cd /shared && $2"' "$ROOT" "$node" "$*"
    ;;
cut) inside chroot "$ROOT" /sbin/ip link set "v${1#n}" down ;;
heal) inside chroot "$ROOT" /sbin/ip link set "v${1#n}" up ;;
isolate) for n; do inside chroot "$ROOT" /sbin/bridge link set dev "v${n#n}" isolated on; done ;;
join) for n; do inside chroot "$ROOT" /sbin/bridge link set dev "v${n#n}" isolated off; done ;;
*)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"
    exit 2
    ;;
esac

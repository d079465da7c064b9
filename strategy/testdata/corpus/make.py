#!/usr/bin/env python3
"""Provoke real failures with real software, and store each with its label.

    make.py GROUP OUT [--python PYTHON] [--tag TAG] [--only REGEX] [--limit SECONDS]

GROUP is cpu, hf, gpu1 or gpu2: what the machine must have. Each case is one line
of OUT: its command (run in programs/), what it printed, how it ended, and what
is known about it because the program was written to do just that. The figures
are read off the first message by the regular expressions below, which know
nothing of the classifier under test.

cgroup cases need root and a memory controller of version 1; a case that cannot
be provoked here is told and left out.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 48 << 10  # bytes of a log that are kept: the first and the last

# name, cause, phase, command, and what else is known: fatal, needs, note
CPU = [
    *[(f"cpu-{p}", "host-oom", q, f"python train.py --starve {p}", {}) for p, q in [
        ("load", "load"), ("forward", "forward"), ("backward", "backward"), ("optimizer", "optimizer"), ("eval", "eval"), ("save", "save")]],
    ("cpu-recompute", "host-oom", "backward", "python train.py --starve recompute --recompute yes", {}),
    ("cpu-recompute-reentrant", "host-oom", "backward", "python train.py --starve recompute --recompute reentrant", {}),
    ("cpu-clip", "host-oom", "optimizer", "python train.py --starve clip --clip", {}),
    ("cpu-caught", "none", "unknown", "python train.py --starve forward --catch --steps 6", {"fatal": False}),
    ("cpu-late", "host-oom", "forward", "python train.py --starve forward --at-step 25 --steps 30 --width 256 --batch 8192", {}),
    ("cpu-leak", "host-oom", "backward", "bash -c 'ulimit -v 4000000; exec python train.py --leak --steps 10000 --width 512 --batch 8192'", {}),
    ("python-memory", "host-oom", "unknown", "python host.py python_memory", {}),
    ("numpy-memory", "host-oom", "unknown", "python host.py numpy_memory", {}),
    ("tensor-load", "host-oom", "load", "python host.py tensor_load", {}),
    ("cgroup-torchrun", "unknown", "unknown", "./limited.sh 700M torchrun --nproc_per_node 1 host.py eat", {"note": "the kernel killed it; the output alone does not prove by whom"}),
    ("cgroup-torchrun-kernel", "host-oom", "unknown", "KERNEL_LOG=1 ./limited.sh 700M torchrun --nproc_per_node 1 host.py eat", {}),
    ("cgroup-shell", "unknown", "unknown", "bash -c './limited.sh 200M python host.py eat; exit $?'", {"note": "the kernel killed it; the output alone does not prove by whom"}),
    ("cgroup-kernel", "host-oom", "unknown", "KERNEL_LOG=1 ./limited.sh 200M python host.py eat", {}),
    ("cgroup-loader", "host-oom", "unknown", "./limited.sh 900M python host.py loader", {}),
    ("shm-loader", "shm", "unknown", "unshare -m sh -c 'mount -t tmpfs -o size=8m tmpfs /dev/shm && exec python host.py shm'", {}),
    ("shm-file-system", "shm", "unknown", "unshare -m sh -c 'mount -t tmpfs -o size=8m tmpfs /dev/shm && exec python host.py shm_file_system'", {}),
    ("shm-share", "shm", "unknown", "unshare -m sh -c 'mount -t tmpfs -o size=8m tmpfs /dev/shm && exec python host.py shm_share'", {}),
    *[(f"disk-{p.replace('_', '-')}", c, q, f"unshare -m sh -c 'mkdir full && mount -t tmpfs -o size=16m tmpfs full && exec python host.py {p}'", {}) for p, c, q in [
        ("save_torch", "storage", "save"), ("save_numpy", "disk-full", "save"), ("write_log", "disk-full", "unknown")]],  # PyTorch does not say why
    ("disk-file-limit", "storage", "save", "sh -c 'mkdir full && ulimit -f 2048 && exec python host.py save_torch'", {}),
    ("disk-read-only", "disk-full", "unknown", "unshare -m sh -c 'mkdir full && mount -t tmpfs -o ro tmpfs full && exec python host.py write_log'", {}),
    ("port-store", "port-in-use", "unknown", "python taken.py python host.py listen", {}),
    ("port-init", "port-in-use", "load", "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 python taken.py sh -c 'MASTER_PORT=TAKEN exec python host.py init'", {}),
    ("port-torchrun", "port-in-use", "unknown", "python taken.py torchrun --nnodes 1 --nproc_per_node 1 --master_addr 127.0.0.1 --master_port TAKEN host.py wait", {}),
    ("segfault-handler", "segfault", "unknown", "PYTHONFAULTHANDLER=1 python host.py segfault", {}),
    ("segfault-shell", "segfault", "unknown", "bash -c 'python host.py segfault; exit $?'", {}),
    ("segfault-torchrun", "segfault", "unknown", "torchrun --nproc_per_node 1 host.py segfault", {}),
    ("segfault-bus", "segfault", "unknown", "bash -c 'python host.py bus; exit $?'", {}),
    ("abort", "unknown", "unknown", "bash -c 'python host.py abort; exit $?'", {}),
    ("term-torchrun", "preempted", "unknown", "bash -c 'torchrun --nproc_per_node 1 host.py wait & until test -e ready; do sleep 0.1; done; kill -TERM $!; wait $!'", {}),
    ("term-shell", "preempted", "unknown", "bash -c 'python host.py wait & until test -e ready; do sleep 0.1; done; kill -TERM $!; wait $!; code=$?; exit $code'", {}),
    ("interrupt", "preempted", "unknown", "bash -c 'set -m; python host.py wait & until test -e ready; do sleep 0.1; done; kill -INT $!; wait $!'", {}),
    ("kill", "unknown", "unknown", "bash -c 'python host.py wait & until test -e ready; do sleep 0.1; done; kill -KILL $!; wait $!'", {"note": "somebody killed it; the output does not say who"}),
    ("time-limit", "preempted", "unknown", "timeout -v 5 python host.py wait", {}),
    *[(f"gloo-{p.replace('_', '-')}", c, q, f"BACKEND=gloo torchrun --standalone --nproc_per_node 2 ranks.py {p}", o) for p, c, q, o in [
        ("timeout", "nccl-timeout", "collective", {}), ("user_error", "user-error", "unknown", {}), ("killed", "unknown", "unknown", {}), ("crash", "segfault", "unknown", {}),
        ("one_rank", "host-oom", "forward", {}), ("all_ranks", "host-oom", "forward", {}), ("barrier", "nccl-timeout", "collective", {}), ("diverged", "diverged", "unknown", {})]],
    *[(p.replace("_", "-"), c, q, f"python host.py {p}", o) for p, c, q, o in [
        ("nan_anomaly", "diverged", "backward", {}), ("multinomial", "diverged", "unknown", {}), ("normal", "diverged", "unknown", {}), ("loss_check", "diverged", "unknown", {}),
        ("nan_goes_on", "none", "unknown", {"fatal": False}), ("shape", "user-error", "forward", {}), ("backward_twice", "user-error", "backward", {}), ("missing_key", "user-error", "load", {}),
        ("missing_module", "user-error", "load", {}), ("missing_file", "user-error", "unknown", {}), ("arguments", "user-error", "unknown", {}), ("gives_up", "user-error", "unknown", {}),
        ("descriptors", "unknown", "unknown", {}), ("recursion", "user-error", "unknown", {}), ("no_cuda", "driver", "unknown", {}),
        ("healthy", "none", "unknown", {"fatal": False}), ("thread_dies", "none", "unknown", {"fatal": False})]],
    ("not-python", "user-error", "unknown", "python absent.py", {}),
]

HF = [
    *[(f"trainer-cpu-{p}", "host-oom", p, f"python hf.py --starve {p}", {}) for p in ("forward", "backward", "optimizer", "eval")],
    ("trainer-cpu-recompute", "host-oom", "backward", "python hf.py --starve recompute --checkpointing --batch 64", {}),
    ("trainer-cpu-auto", "none", "unknown", "python hf.py --auto", {"fatal": False}),
    ("trainer-disk", "disk-full", "save", "unshare -m sh -c 'mkdir full && mount -t tmpfs -o size=4m tmpfs full && exec python hf.py --out full --batch 4'", {}),
    ("disk-read-only-torch", "disk-full", "save", "unshare -m sh -c 'mkdir full && mount -t tmpfs -o ro tmpfs full && exec python host.py save_torch'", {}),
    ("accelerate-finder-cpu", "none", "unknown", "python host.py accelerate_finder", {"fatal": False}),
    ("safetensors-disk", "disk-full", "save", "unshare -m sh -c 'mkdir full && mount -t tmpfs -o size=16m tmpfs full && exec python host.py save_safetensors'", {}),
]

BIG = "--device cuda --width 2048"
GPU1 = [
    *[(f"cuda-{p}", "cuda-oom", q, f"python train.py {BIG} --starve {p}", {}) for p, q in [
        ("load", "load"), ("forward", "forward"), ("backward", "backward"), ("optimizer", "optimizer"), ("eval", "eval"), ("save", "save")]],
    ("cuda-recompute", "cuda-oom", "backward", f"python train.py {BIG} --starve recompute --recompute yes --at-step 2", {}),
    ("cuda-recompute-reentrant", "cuda-oom", "backward", f"python train.py {BIG} --starve recompute --recompute reentrant --at-step 2", {}),
    ("cuda-optimizer-fused", "cuda-oom", "optimizer", f"python train.py {BIG} --starve optimizer --fused", {}),
    ("cuda-clip", "cuda-oom", "optimizer", f"python train.py {BIG} --starve clip --clip --at-step 2", {}),
    ("cuda-amp", "cuda-oom", "forward", f"python train.py {BIG} --starve forward --amp", {}),
    ("cuda-late", "cuda-oom", "forward", f"python train.py {BIG} --starve forward --at-step 40 --steps 50", {}),
    ("cuda-caught", "none", "unknown", f"python train.py {BIG} --starve forward --catch --steps 8", {"fatal": False}),
    ("cuda-caught-backward", "none", "unknown", f"python train.py {BIG} --starve backward --at-step 3 --catch --steps 9", {"fatal": False}),
    ("cuda-leak", "cuda-oom", "backward", f"python train.py {BIG} --fraction 0.02 --leak --steps 1000", {"needs": "share"}),
    ("cuda-fraction", "cuda-oom", "forward", f"python train.py {BIG} --fraction 0.008 --batch 65536", {"needs": "share"}),
    ("cuda-expandable", "cuda-oom", "forward", f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py {BIG} --fraction 0.008 --batch 65536", {"needs": "share"}),
    ("cuda-no-caching", "cuda-oom", "forward", f"PYTORCH_NO_CUDA_MEMORY_CACHING=1 python train.py {BIG} --batch 4194304", {}),
    ("cuda-malloc-async", "cuda-oom", "forward", f"PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync python train.py {BIG} --batch 4194304", {}),
    ("compile-forward", "cuda-oom", "forward", f"python train.py {BIG} --compile --starve forward --at-step 2", {}),
    ("compile-backward", "cuda-oom", "backward", f"python train.py {BIG} --compile --starve backward --at-step 2", {}),
    *[(p.replace("_", "-"), c, q, f"python fail.py {p}", o) for p, c, q, o in [
        ("cublas", "cuda-oom", "unknown", {}), ("cublas_half", "cuda-oom", "unknown", {}), ("cudnn", "cuda-oom", "forward", {}), ("cufft", "cuda-oom", "unknown", {}),
        ("cusolver", "cuda-oom", "unknown", {}),
        ("impossible", "cuda-oom", "unknown", {"needs": "share"}), ("segments", "cuda-oom", "unknown", {"needs": "share"}),
        ("pinned", "host-oom", "unknown", {"needs": "share"}), ("graph", "cuda-oom", "unknown", {}),
        ("attention", "cuda-oom", "unknown", {}), ("device_assert", "device-assert", "unknown", {"needs": "share"}), ("label_assert", "device-assert", "unknown", {"needs": "share"}),
        ("illegal", "illegal-access", "unknown", {"needs": "share"}), 
        ("triton_resources", "kernel-resources", "unknown", {"needs": "share"}), 
        ("numba_memory", "cuda-oom", "unknown", {}), ("cupy_memory", "cuda-oom", "unknown", {}), ("cupy_limit", "cuda-oom", "unknown", {"needs": "share"}),
        ("nan_anomaly", "diverged", "backward", {"needs": "share"}), ("multinomial", "diverged", "unknown", {"needs": "share"}),
        ("finder", "none", "unknown", {"fatal": False, "needs": "share"}), ("finder_in_vain", "cuda-oom", "unknown", {})]],
    ("no-gpu", "driver", "unknown", "CUDA_VISIBLE_DEVICES= python fail.py no_gpu", {"needs": "share"}),
    ("jax", "cuda-oom", "unknown", "python fail.py jax_memory", {}),
    ("jax-steps", "cuda-oom", "unknown", "XLA_PYTHON_CLIENT_PREALLOCATE=false python fail.py jax_two", {}),
    ("tenant", "gpu-occupied", "forward", f"sh -c 'python fail.py hold 120 & until test -e ready; do sleep 0.1; done; python train.py {BIG} --starve forward; code=$?; kill $!; exit $code'", {}),
    ("tenant-context", "cuda-oom", "unknown", "sh -c 'python fail.py hold all & until test -e ready; do sleep 0.1; done; python fail.py cublas; code=$?; kill $!; exit $code'",
        {"note": "another process fills the card, which the text does not tell"}),
    *[(f"trainer-{p}", "cuda-oom", p, f"python hf.py --device cuda --starve {p} --batch 64", {}) for p in ("forward", "backward", "optimizer", "eval")],
    ("trainer-recompute", "cuda-oom", "backward", "python hf.py --device cuda --starve recompute --checkpointing --batch 64", {}),
    ("trainer-auto", "none", "unknown", "python hf.py --device cuda --auto", {"fatal": False}),
    *[(f"lightning-{p}", "cuda-oom", p, f"python lit.py {p}", {}) for p in ("forward", "backward", "optimizer", "eval")],
    ("lightning-finder", "none", "unknown", "python lit.py finder", {"fatal": False, "needs": "share"}),
]

GPU2 = [
    *[(f"nccl-{p.replace('_', '-')}", c, q, f"TORCH_NCCL_DUMP_ON_TIMEOUT=0 TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=15 torchrun --standalone --nproc_per_node 2 ranks.py {p}", {"needs": n}) for p, c, q, n in [
        ("timeout", "nccl-timeout", "collective", "share"), ("user_error", "user-error", "unknown", "share"), ("killed", "unknown", "unknown", "share"),
        ("crash", "segfault", "unknown", "share"), ("duplicate", "nccl-error", "collective", "share"), ("mismatch", "nccl-timeout", "collective", "share"),
        ("one_rank", "cuda-oom", "forward", "cards"), ("all_ranks", "cuda-oom", "forward", "cards"), ("wrap", "cuda-oom", "load", "cards"),
        ("gather_object", "cuda-oom", "collective", "cards"), ("nccl_memory", "cuda-oom", "collective", "cards"),
        ("fsdp_forward", "cuda-oom", "forward", "cards"), ("fsdp_optimizer", "cuda-oom", "optimizer", "cards"), ("fsdp_save", "cuda-oom", "save", "cards"),
        ("zero_optimizer", "cuda-oom", "optimizer", "cards")]],
    ("data-parallel", "cuda-oom", "forward", "python fail.py data_parallel", {"needs": "cards"}),
]

GROUPS = {"cpu": CPU, "hf": HF, "gpu1": GPU1, "gpu2": GPU2}

UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
AMOUNT = r"([\d.]+) (bytes|KiB|MiB|GiB|TiB)"


def amount(pattern, text):
    found = re.search(pattern, text, re.M)
    return round(float(found[1]) * UNITS[found[2]]) if found else None


def figures(text):
    """Read the first message that names an amount."""
    asked = rf"(?:ried to allocate|nable to allocate|Out of memory allocating|trying to allocate|^Requested +:) {AMOUNT}"
    text = text.replace(",", "")
    found = re.search(asked, text, re.M)
    if not found:
        return dict.fromkeys(("requested_bytes", "total_bytes", "free_bytes", "allocated_bytes", "reserved_unallocated_bytes", "other_process_bytes"))
    begin = text.rfind("\n", 0, found.start()) + 1
    message = text[begin : text.find("\n", found.end())]
    if message.startswith("Requested"):  # of several lines
        message = "\n".join(text[:begin].splitlines()[-2:] + text[begin:].splitlines()[:3])
    others = [round(float(n) * UNITS[u]) for n, u in re.findall(rf"Process \d+ has {AMOUNT} memory in use", message)]
    return {
        "requested_bytes": amount(asked, message),
        "total_bytes": amount(rf"(?:capacity of|Device limit +:) {AMOUNT}", message),
        "free_bytes": amount(rf"(?:of which|Free .according to CUDA.:) {AMOUNT}", message),
        "allocated_bytes": amount(rf"(?:Of the allocated memory|allocated so far:|Currently allocated +:) {AMOUNT}", message),
        "reserved_unallocated_bytes": amount(rf"{AMOUNT} is reserved by PyTorch but unallocated", message),
        "other_process_bytes": sum(others) if others else None,
    }


def plain(text, folder, shims):
    """Take out what speaks of the machine, not of the failure."""
    text = text.replace(str(folder), "/job").replace(str(shims), "/usr/local/bin")
    text = re.sub(r"/[^\s\"':]*?/lib/python3\.\d+/site-packages", "/usr/lib/python3/site-packages", text)
    text = re.sub(r"/[^\s\"':]*?/lib/python3\.\d+/(?!site-packages)", "/usr/lib/python3/", text)
    text = re.sub(r"/(?:opt|root|work|home)/[^\s\"':]*?/bin/(python[\d.]*)", r"/usr/bin/\1", text)
    text = re.sub(r"/process_api/[0-9a-f]+", "", text)
    text = re.sub(rf"(?<![\w/.-]){re.escape(socket.gethostname())}(?=[\]:\s.])", "node0", text) if len(socket.gethostname()) > 4 else re.sub(
        rf"(\bhost\s*: |\[){re.escape(socket.gethostname())}\b", r"\1node0", text)
    text = re.sub(r"/tmp/torchelastic_\w+|/tmp/torchinductor_\w+|/tmp/\.?tmp\w+", "/tmp/job", text)
    if len(text) > LIMIT:
        text = text[: LIMIT // 2] + "\n" + text[-LIMIT // 2 :]
    return text


def interpreters(python):
    """A folder in which python, python3 and torchrun are those of one installation."""
    shims = pathlib.Path(tempfile.mkdtemp(prefix="corpus-bin-"))
    for name, words in {"python": "", "python3": "", "torchrun": "-m torch.distributed.run"}.items():
        (shims / name).write_text(f'#!/bin/sh\nexec {python} {words} "$@"\n')
        (shims / name).chmod(0o755)
    return shims


def provoke(case, args, shims, gpu):
    name, cause, phase, command, known = case
    folder = pathlib.Path(tempfile.mkdtemp(prefix="corpus-"))
    for program in (HERE / "programs").iterdir():
        if program.is_file():
            shutil.copy(program, folder)
    env = {
        **os.environ, "PATH": f"{shims}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1",
        "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false", "NO_COLOR": "1",
    }
    if gpu is not None:
        env["CUDA_VISIBLE_DEVICES"] = str(gpu)
    began = time.monotonic()
    process = subprocess.Popen(command, shell=True, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        out, _ = process.communicate(timeout=args.patience)
        ended = True
    except subprocess.TimeoutExpired:
        ended = False
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if not ended:
        out, _ = process.communicate()
    text = plain(out.decode("utf-8", "surrogateescape").encode("utf-8", "replace").decode(), folder, shims)
    shutil.rmtree(folder, ignore_errors=True)
    fatal = known.get("fatal", True)
    print(f"{name:28} exit {process.returncode:4} {time.monotonic() - began:5.1f} s {text.strip().splitlines()[-1][:100] if text.strip() else ''}", flush=True)
    if not ended or (process.returncode == 0) == fatal:
        print(f"{name}: not provoked here{'' if ended else ' in time'}\n{text[-1500:]}", file=sys.stderr, flush=True)
        return None
    return {
        "id": f"{name}{args.tag}", "cause": cause, "framework": args.framework, "phase": phase, "exit_code": process.returncode, "fatal": fatal,
        **figures(text), "label_note": known.get("note"), "command": command, "log": text,
    }


def run_all(cases, args, shims):
    """Cases that share a card run at once; those that fill it have it alone."""
    gpus = [0, 1] if args.group == "gpu1" and args.cards == 2 else [0] if args.group == "gpu1" else [None]
    share = [c for c in cases if c[4].get("needs") == "share"]
    alone = [c for c in cases if c[4].get("needs") != "share"]
    late = time.monotonic() + args.limit
    found = {}

    def one(case, gpu):
        if time.monotonic() < late:
            found[case[0]] = provoke(case, args, shims, gpu)
        else:
            print(f"{case[0]}: no time left", flush=True)

    def queue(mine, gpu):
        for case in mine:
            one(case, gpu)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: one(share[n], gpus[n % len(gpus)]), range(len(share))))
    with concurrent.futures.ThreadPoolExecutor(len(gpus)) as pool:
        list(pool.map(lambda n: queue(alone[n :: len(gpus)], gpus[n]), range(len(gpus))))
    return [found[c[0]] for c in cases if found.get(c[0])]


def store(path, records):
    """Add records to a corpus; one that is there under the same name is replaced."""
    known = {}
    if os.path.exists(path):
        with open(path) as f:
            known = {record["id"]: record for record in map(json.loads, f)}
    known.update({record["id"]: record for record in records})
    with open(path, "w") as f:
        for record in known.values():
            f.write(json.dumps(record, ensure_ascii=False) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("group", choices=GROUPS)
    parser.add_argument("out")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--tag", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--cards", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which no case begins")
    parser.add_argument("--patience", type=float, default=120, help="seconds that a case may take")
    args = parser.parse_args()
    shims = interpreters(args.python)
    args.framework = subprocess.check_output([args.python, "-c", "import torch; print('torch', torch.__version__)"], text=True, stderr=subprocess.DEVNULL).splitlines()[-1]
    cases = [c for c in GROUPS[args.group] if re.search(args.only, c[0])]
    records = run_all(cases, args, shims)
    store(args.out, records)
    shutil.rmtree(shims)
    print(f"{len(records)} of {len(cases)} provoked")


if __name__ == "__main__":
    main()

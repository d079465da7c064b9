"""Measures plans: one line of JSON for each. README.md says how it is used, and what the keys mean."""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROW = 75  # seconds that a row may take
OPTIONAL = {"lengths", "overlap", "sub_group", "pin"}  # keys of few plans
FRESH = 75  # the exit code that asks for a fresh process: this one holds what a row left


def main():
    arguments = parse()
    if arguments.rank is None:
        sys.exit(supervise(arguments))
    sys.path.insert(0, HERE)
    sys.exit(work(arguments))


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lists", nargs="+", help="lists of plans.py, in order")
    parser.add_argument("--out", required=True, help="the file that rows are added to; plans that it has are not measured again")
    parser.add_argument("--seconds", type=float, default=480, help="no row is begun after that")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--busy", default="", help="while this file exists, rows are marked as not alone on the machine")
    parser.add_argument("--wait", default="", help="no row is begun while this file exists")
    parser.add_argument("--scratch", default="/tmp/gpurun-rows", help="the folder for what goes to NVMe")
    parser.add_argument("--probe", default=os.path.join(HERE, "../../../../launcher/hook"))
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    return parser.parse_args()


def supervise(arguments):
    """Runs the ranks, and again for the rest of the plans where a row was the end of them."""
    until = time.time() + arguments.seconds
    while time.time() < until:
        before = len(measured(arguments.out))
        codes = wait([start(rank, until, arguments) for rank in range(arguments.ranks)], until + 60)
        if not any(codes):
            return 0
        if FRESH not in codes and os.path.exists(arguments.out + ".at"):
            with open(arguments.out + ".at") as f:
                say(arguments.out, dict(json.load(f), error="the process ended: exit codes %s" % codes))
        if len(measured(arguments.out)) == before:
            return 1  # no row was begun
    return 0


def start(rank, until, arguments):
    port = str(20000 + os.getpid() % 10000)
    env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(arguments.ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    env.setdefault("LOCAL_WORLD_SIZE", str(arguments.ranks))
    own = ["--rank", str(rank), "--until", str(until)]
    return subprocess.Popen([sys.executable, os.path.abspath(__file__)] + sys.argv[1:] + own, env=env, start_new_session=True)


def wait(ranks, until):
    """Waits for all; where one fails, the others are not waited for: they may hang."""
    while any(r.poll() is None for r in ranks):
        failed = any(r.returncode not in (None, 0) for r in ranks)
        if failed or time.time() > until:
            time.sleep(3 if failed else 0)
            for r in ranks:
                if r.poll() is None:
                    os.killpg(r.pid, signal.SIGKILL)  # with what compiles DeepSpeed's parts
        time.sleep(0.1)
    return [r.wait() for r in ranks]


def measured(path):
    """Gives the rows that a file has, those of failures too."""
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [row for row in map(json.loads, f) if "micro" in row]


def is_of(plan, row):
    """Tells whether a row is one of this plan: what it does not say is as by default."""
    return all(row.get(key) == plan.get(key) for key in set(plan) | OPTIONAL)


def say(path, row):
    with open(path, "a") as f:
        f.write(json.dumps(row) + "\n")


def work(arguments):
    import jobs
    import meter
    import plans
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(arguments.rank)
    group(arguments)
    done = measured(arguments.out)
    todo = [p for name in arguments.lists for p in plans.LISTS[name]()]
    todo = [p for p in todo if not any(is_of(p, row) for row in done)]
    if arguments.rank == 0 and not os.path.exists(arguments.out):
        head(arguments.out, todo)
    while os.path.exists(arguments.wait) and time.time() < arguments.until:
        time.sleep(0.2)
    for plan in todo:
        if late(arguments.until):
            break
        if arguments.rank == 0:
            with open(arguments.out + ".at", "w") as f:
                json.dump(plan, f)
        row = dict(plan, alone=not os.path.exists(arguments.busy))
        begun = time.time()
        signal.alarm(ROW)  # nobody catches it: it ends also what hangs outside Python
        try:
            measure(plan, arguments, row)
        except Exception as e:
            row["oom" if isinstance(e, torch.OutOfMemoryError) else "error"] = "%s: %s" % (type(e).__name__, str(e)[:400])
        row["row_s"] = round(time.time() - begun, 2)
        if arguments.rank == 0:
            say(arguments.out, row)
            print(row["row_s"], short(row), flush=True)
        if meter.left() > meter.LEFT or "error" in row or "oom" in row:
            os._exit(FRESH)
    os._exit(0)  # without NCCL's and the swapper's own ends, which may wait


def group(arguments):
    """Makes the process group, by DeepSpeed where a plan needs it."""
    import plans

    if any(p["engine"] == "deepspeed" for name in arguments.lists for p in plans.LISTS[name]()):
        import logging

        import deepspeed

        logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
        deepspeed.init_distributed()
    elif arguments.ranks > 1:
        import torch

        torch.distributed.init_process_group()


def head(path, todo):
    """Begins a file: what was measured, on what, one line a model."""
    import models
    import torch
    import transformers  # noqa: F401, for its version

    versions = {"device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"}
    for name in ("torch", "transformers", "deepspeed"):
        if name in sys.modules:
            versions[name] = sys.modules[name].__version__
    for name in sorted({p["model"] for p in todo}):
        say(path, dict(models.head(name), **versions))


def late(until):
    """Tells whether it is too late for one row more; all ranks are told the same."""
    import torch
    import torch.distributed as dist

    answer = torch.tensor([1.0 if time.time() > until else 0.0])
    if dist.is_initialized() and dist.get_world_size() > 1:
        answer = answer.to("cuda") if torch.cuda.is_available() else answer
        dist.all_reduce(answer)
    return answer.item() > 0


def measure(plan, arguments, row):
    """Runs one plan's steps, and writes what was seen into row as it goes."""
    import jobs
    from meter import Meter

    meter = Meter()
    job = jobs.make(plan, arguments.probe, arguments.scratch)
    try:
        row["n_params"] = sum(getattr(p, "ds_numel", p.numel()) for p in job.bare.parameters())
        row["init_peak"] = meter.mark()
        row["static_load"] = meter.held()
        row["host_loaded"] = host_rss()
        times = [step(n, job, plan, meter, row) for n in range(max(arguments.steps, len(plan.get("lengths", ()))))]
        row["step_s"], row["step_min_s"] = round(statistics.median(times[1:]), 5), round(min(times[1:]), 5)
        row["samples_per_s"] = round(plan["micro"] * plan["accum"] * plan["ranks"] / row["step_s"], 3)
        row["peak_allocated"] = max(row["peak_before_optim"], row["peak_optim"], row["peak_later"])
        row["nvme_bytes"] = folder_bytes(arguments.scratch)
        row.update(meter.rest())
    finally:
        job.close()


def step(number, job, plan, meter, row):
    """Runs one optimizer step; of the first, each instant is told."""
    import jobs
    import models

    lengths = plan.get("lengths") or [plan["sequence"]]
    batch = models.batch(job.bare, plan["micro"], lengths[number % len(lengths)], jobs.device())
    begun = meter.now()
    for call in range(plan["accum"]):
        last = call == plan["accum"] - 1
        loss = job.forward(batch, last)
        if number == 0 and call == 0:
            row["after_forward"], row["peak_forward"] = meter.held(), meter.mark()
        job.backward(loss)
        del loss
        if not last:
            job.step()
            if number == 0 and call == 0:
                row["after_backward"] = meter.held()
    if number == 0:
        row["before_optim"] = meter.held()
        row["peak_before_optim"] = max(row["peak_forward"], meter.mark())
    job.step()
    if number == 0:
        row["after_step1"], row["peak_optim"] = meter.held(), meter.mark()
        row["step1_s"] = round(meter.now() - begun, 4)
    else:
        row["peak_later"] = max(row.get("peak_later", 0), meter.mark())
    return meter.now() - begun


def host_rss():
    from meter import host

    return host("VmRSS")


def folder_bytes(path):
    return sum(os.path.getsize(os.path.join(top, name)) for top, _, names in os.walk(path) for name in names)


def short(row):
    """Gives a row in words for who watches."""
    shown = {k: row[k] for k in ("model", "sharding", "micro", "accum", "ckpt", "by", "offload_optimizer", "offload_param", "buckets", "sequence") if k in row}
    shown.update({k: round(row[k] / 2**30, 2) for k in ("static_load", "peak_before_optim", "peak_allocated", "outside", "host_peak", "pinned_peak", "nvme_bytes") if k in row})
    shown.update({k: row[k] for k in ("step_s", "oom", "error") if k in row})
    return " ".join(str(v) if not isinstance(v, float) else "%s=%.3f" % (k, v) for k, v in shown.items())


if __name__ == "__main__":
    main()

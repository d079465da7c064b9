# One rank of several that sum up what each has, as one line of JSON. The arguments are
# backend, rank, number of ranks, port and device.
import os, sys
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
sys.path[:] = [p for p in sys.path if p]
import datetime, json, time
import torch
import torch.distributed as dist

print("ready", file=sys.stderr, flush=True)

backend, rank, world, port, device = sys.argv[1], *map(int, sys.argv[2:6])
where = "cpu"
if backend == "nccl":
    torch.cuda.set_device(device)
    where = "cuda"
dist.init_process_group(backend, init_method="tcp://127.0.0.1:%d" % port, rank=rank, world_size=world, timeout=datetime.timedelta(seconds=15))
elements = (64 << 20 if backend == "nccl" else 1 << 20) // 4
numbers = torch.full((elements,), float(rank + 1), device=where)
dist.all_reduce(numbers)
right = bool((numbers == world * (world + 1) / 2).all())


def finished():
    if where == "cuda":
        torch.cuda.synchronize()


numbers.zero_()
dist.all_reduce(numbers)
finished()
begin, rounds = time.perf_counter(), 5
for _ in range(rounds):
    dist.all_reduce(numbers)
finished()
took = (time.perf_counter() - begin) / rounds
out.write(json.dumps({"sum": right, "speed": 2 * (world - 1) / world * elements * 4 / took}) + "\n")
out.flush()
dist.barrier()
dist.destroy_process_group()
os._exit(0)

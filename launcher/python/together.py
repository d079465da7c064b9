# One rank of several that sum up over NCCL what each has, as one line of JSON. The arguments are
# rank, number of ranks, port and device.
import os, sys
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
sys.path[:] = [p for p in sys.path if p]
import datetime, json, time
import torch
import torch.distributed as dist

print("ready", file=sys.stderr, flush=True)

rank, world, port, device = map(int, sys.argv[1:5])
torch.cuda.set_device(device)
dist.init_process_group("nccl", init_method="tcp://127.0.0.1:%d" % port, rank=rank, world_size=world, timeout=datetime.timedelta(seconds=15))
elements = (64 << 20) // 4
numbers = torch.full((elements,), float(rank + 1), device="cuda")
dist.all_reduce(numbers)
right = bool((numbers == world * (world + 1) / 2).all())
numbers.zero_()
dist.all_reduce(numbers)
torch.cuda.synchronize()
begin, rounds = time.perf_counter(), 5
for _ in range(rounds):
    dist.all_reduce(numbers)
torch.cuda.synchronize()
took = (time.perf_counter() - begin) / rounds
out.write(json.dumps({"sum": right, "speed": 2 * (world - 1) / world * elements * 4 / took}) + "\n")
out.flush()
dist.barrier()
dist.destroy_process_group()
os._exit(0)

# The largest single allocation on one GPU, and whether freed pieces are merged again
# where segments can grow, as one line of JSON. The argument is the device's number.
import os, sys
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
sys.path[:] = [p for p in sys.path if p]
import json
import torch

print("ready", file=sys.stderr, flush=True)

device = int(sys.argv[1])
new = tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2] if n.isdigit()) >= (2, 1)
answer = {"total": 0, "free": 0, "largest": 0, "wanted": 0, "regained": False, "expandable": False, "error": ""}
MiB = 1 << 20


def take(size):
    try:
        return torch.empty(size, dtype=torch.uint8, device="cuda")
    except RuntimeError as e:
        if "out of memory" not in str(e):
            raise
        return None


def largest(free):
    size = free
    while size > free // 4:
        got = take(size // MiB * MiB)
        if got is not None:
            del got
            torch.cuda.empty_cache()
            return size // MiB * MiB
        size -= max(free // 64, 2 * MiB)
    return 0


def fragment(free, total):
    room = min(free, 16 << 30)  # more takes seconds
    torch.cuda.set_per_process_memory_fraction(room / total)
    piece = max(room // 64 // (64 * MiB), 1) * 64 * MiB
    pieces = []
    while len(pieces) < 64:
        got = take(piece)
        if got is None:
            break
        pieces.append(got)
    answer["expandable"] = any(s.get("is_expandable") for s in torch.cuda.memory_snapshot())
    freed = (len(pieces) + 1) // 2
    del got, pieces[::2]
    answer["wanted"] = freed * piece * 3 // 4
    answer["regained"] = take(answer["wanted"]) is not None


try:
    torch.cuda.set_device(device)
    if new:
        torch.cuda.memory._set_allocator_settings("expandable_segments:False")
    torch.ones(1, device="cuda")
    answer["free"], answer["total"] = torch.cuda.mem_get_info()
    answer["largest"] = largest(answer["free"])
    if new:
        torch.cuda.empty_cache()
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
        fragment(answer["free"], answer["total"])
except Exception as e:
    answer["error"] = "%s: %s" % (type(e).__name__, str(e).split("\n")[0])
out.write(json.dumps(answer) + "\n")
out.flush()
os._exit(0)

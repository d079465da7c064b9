# Writes 256 MiB on one GPU and reads them back, as one line of JSON. The argument is the
# device's number.
import os, sys
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
sys.path[:] = [p for p in sys.path if p]
import json
import torch

print("ready", file=sys.stderr, flush=True)

answer = {"absent": "", "full": False, "wrong": 0, "error": ""}
PIECES, PIECE = 8, (32 << 20) // 4  # of four bytes each, so that the host needs little


def pieces(pattern):
    base = torch.arange(PIECE, dtype=torch.int32)
    for k in range(PIECES):
        yield k * PIECE, (base + k) ^ pattern


def write_and_read(pattern):
    there = torch.empty(PIECES * PIECE, dtype=torch.int32, device="cuda")
    for at, words in pieces(pattern):
        there[at:at + PIECE].copy_(words)
    torch.cuda.synchronize()
    return sum(int((there[at:at + PIECE].cpu() != words).sum()) for at, words in pieces(pattern))


try:
    if not (torch.version.cuda or torch.version.hip):
        answer["absent"] = "torch %s is built for the CPU" % torch.__version__
    else:
        torch.cuda.set_device(int(sys.argv[1]))
        answer["wrong"] = write_and_read(0x55555555) + write_and_read(0x2AAAAAAA)
except Exception as e:
    answer["error"] = "%s: %s" % (type(e).__name__, str(e).split("\n")[0])
    answer["full"] = "out of memory" in answer["error"]
out.write(json.dumps(answer) + "\n")
out.flush()
os._exit(0)

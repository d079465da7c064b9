# Describes an interpreter's PyTorch in one line of JSON. The GPUs are counted and
# not used.
import os, sys
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
sys.path[:] = [p for p in sys.path if p]  # the working directory is none of its packages
import ctypes, json

print("ready", file=sys.stderr, flush=True)  # the import of PyTorch is part of the trial
facts = {}


def finish():
    out.write(json.dumps(facts) + "\n")
    out.flush()
    os._exit(0)  # libraries may hang at the end


def loads(*names):
    for name in names:
        try:
            ctypes.CDLL(name)
            return True
        except OSError:
            pass
    return False


facts["libaio"] = loads("libaio.so.1", "libaio.so.1t64", "libaio.so")
try:
    import torch
except BaseException as e:
    facts["missing"] = getattr(e, "name", None) == "torch"
    facts["error"] = "%s: %s" % (type(e).__name__, e)
    finish()
facts["torch"] = str(torch.__version__)
facts["cuda"], facts["hip"] = getattr(torch.version, "cuda", None) or "", getattr(torch.version, "hip", None) or ""
try:
    facts["architectures"] = torch.cuda.get_arch_list()
except Exception:
    facts["architectures"] = []
if facts["cuda"] or facts["hip"]:
    try:
        facts["devices"] = torch.cuda.device_count()
        torch.cuda.is_available() or torch._C._cuda_init()
    except Exception as e:
        facts["cuda_error"] = str(e).split("\n")[0]
try:
    facts["nccl"] = torch.distributed.is_available() and torch.distributed.is_nccl_available()
except AttributeError:
    pass
finish()

# Which of DeepSpeed's operations are built, or can be, as one line of JSON.
import os, sys
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
sys.path[:] = [p for p in sys.path if p]
import contextlib, io, json, re

print("ready", file=sys.stderr, flush=True)
answer = {"operations": [], "error": ""}
try:
    from deepspeed.ops.op_builder.all_ops import ALL_OPS
    try:
        from deepspeed.git_version_info import installed_ops
    except Exception:
        installed_ops = {}
    for name in ("cpu_adam", "fused_adam", "async_io"):
        builder = ALL_OPS.get(name)
        if builder is None:
            continue
        one = {"name": name, "built": bool(installed_ops.get(name)), "compatible": False, "why": ""}
        words = io.StringIO()
        try:
            with contextlib.redirect_stdout(words):
                one["compatible"] = bool(builder.is_compatible(verbose=True))
        except BaseException as e:
            one["why"] = "%s: %s" % (type(e).__name__, str(e).split("\n")[0])
        if not one["compatible"] and not one["why"]:
            lines = [re.sub(r"\x1b\[[0-9;]*m|\[WARNING\]", "", line).strip() for line in words.getvalue().split("\n")]
            one["why"] = next((line for line in lines if line), "")
        answer["operations"].append(one)
except BaseException as e:
    answer["error"] = "%s: %s" % (type(e).__name__, str(e).split("\n")[0])
out.write(json.dumps(answer) + "\n")
out.flush()
os._exit(0)

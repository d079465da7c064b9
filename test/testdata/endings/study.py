# Tries several settings, and goes on where one fails.
import subprocess
import sys

ends = [subprocess.call([sys.executable, "train.py", how]) for how in sys.argv[1:]]
if not any(end == 0 for end in ends):
    raise SystemExit("no trial ended well")

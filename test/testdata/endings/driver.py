# Starts the training, and ends as it does.
import subprocess
import sys

sys.exit(subprocess.run([sys.executable, "train.py"] + sys.argv[1:]).returncode)

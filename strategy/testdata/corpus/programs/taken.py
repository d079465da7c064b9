"""Run a command while TAKEN is a port that somebody listens on."""

import os
import socket
import subprocess
import sys

with socket.socket() as s:
    s.bind(("0.0.0.0", 0))
    s.listen()
    port = str(s.getsockname()[1])
    done = subprocess.run([w.replace("TAKEN", port) for w in sys.argv[1:]], env={**os.environ, "TAKEN": port})
sys.exit(done.returncode)

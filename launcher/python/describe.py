# Describes an interpreter in one line of JSON, and imports nothing that does
# not come with Python: of a module with the same name in the working directory or
# next to it, the code would run.
import sys

before, sys.path[:] = list(sys.path), [p for p in sys.path if p]

import json

if "program" in sys.argv[1:]:  # which is the input, after its length, and runs first
    import os

    found, library = sys.path[:], os.path.dirname(os.__file__)
    sys.path[:] = [p for p in found if p.startswith(library) and "-packages" not in p]
    try:
        exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())), {"__name__": "__main__"})
    except (Exception, SystemExit) as fault:
        sys.stdout.write("\n" + json.dumps({"unknown": "%s: %s" % (type(fault).__name__, fault)}) + "\n")
    sys.path[:] = found

answer = {"version": "%d.%d.%d" % sys.version_info[:3], "path": list(sys.path)}
if "packages" in sys.argv[1:]:
    try:
        from importlib.metadata import distributions
    except ImportError:  # before Python 3.8
        pass
    else:
        packages = answer["packages"] = {}
        for d in distributions(path=before):
            try:
                name, version = d.metadata["Name"], d.version
            except Exception:  # one that is broken hides no other
                continue
            if name and version:
                packages.setdefault(name.lower(), version)  # the first is what an import finds
sys.stdout.write("\n" + json.dumps(answer) + "\n")

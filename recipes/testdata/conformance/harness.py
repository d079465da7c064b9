"""Asks a framework what it reads from commands.

usage: harness.py FOLDER    # FOLDER/parse.py has PACKAGES and parse(case)

stdin: a JSON list of {"name", "argv", "env", "folder", "attempt", "ranks"}.
stdout: {"packages": {name: version}, "answers": [{knob: value} | {"error": text}]}.
Each case runs in a process of its own, forked once parse.py is imported, with
the case's folder as working directory and its variables in the environment.
"""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import signal
import sys
import tempfile
import traceback
from types import SimpleNamespace


PATIENCE = 120  # seconds for one case


def load(folder):
    sys.path[:0] = [str(folder), str(folder.parent)]
    spec = importlib.util.spec_from_file_location("parse", folder / "parse.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answer(parse, case):
    """What the framework reads, found by a child, which may do as it likes."""
    result, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(result)
        try:
            os.chdir(case.folder)
            os.environ.update(case.env)
            sys.argv = list(case.argv)
            signal.alarm(PATIENCE)  # a parser that waits for other ranks waits for ever
            text = json.dumps(parse(case))
        except BaseException as error:  # argparse exits
            traceback.print_exc()
            text = json.dumps({"error": f"{type(error).__name__}: {error}"})
        with os.fdopen(end, "w") as out:
            out.write(text)
        sys.stderr.flush()
        os._exit(0)
    os.close(end)
    with os.fdopen(result) as answers:
        text = answers.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if text else {"error": f"the parser ended with status {status}"}


def versions(packages):
    """Package names, or pairs of a name and a version, to versions."""
    return dict(p if isinstance(p, tuple) else (p, importlib.metadata.version(p)) for p in packages)


def main():
    cases = [SimpleNamespace(**case) for case in json.load(sys.stdin)]
    home = tempfile.mkdtemp(dir=os.environ["TMPDIR"])
    os.environ.update(HOME=home, HF_HOME=home, TRITON_HOME=home, XDG_CACHE_HOME=home, HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="")
    stdout = os.dup(1)
    os.dup2(2, 1)  # children print there, too
    with contextlib.redirect_stdout(sys.stderr):
        module = load(pathlib.Path(sys.argv[1]).absolute())
        answers = [answer(module.parse, case) for case in cases]
    with os.fdopen(stdout, "w") as out:
        json.dump({"packages": versions(module.PACKAGES), "answers": answers}, out)


if __name__ == "__main__":
    main()

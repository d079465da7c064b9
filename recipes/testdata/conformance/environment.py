"""Makes the environment of a recipe's framework, and prints its interpreter.

usage: environment.py NAME CACHE

An environment is CACHE/NAME, made again when its entry in frameworks.toml
changes: packages, and pinned packages, which are installed without their
dependencies. PyTorch is large, so all of them see the packages of one more,
CACHE/torch, which torch.txt fills.
"""

import fcntl
import json
import pathlib
import shutil
import subprocess
import sys
import tomllib

HERE = pathlib.Path(__file__).parent


def run(*words):
    subprocess.run([str(w) for w in words], check=True, stdout=sys.stderr, stdin=subprocess.DEVNULL)


def python(venv):
    return venv / "bin" / "python"


def site(venv):
    """The folder of the environment's packages."""
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return pathlib.Path(subprocess.run([str(python(venv)), "-c", ask], check=True, capture_output=True, text=True).stdout.strip())


def install(venv, *words):
    run(python(venv), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words)


def shared(cache):
    venv = cache / "torch"
    if not python(venv).exists():
        run(sys.executable, "-m", "venv", "--clear", venv)
        install(venv, "-r", HERE / "torch.txt")
    return venv


def environment(name, cache):
    framework = tomllib.loads((HERE / "frameworks.toml").read_text())[name]
    wanted = json.dumps(framework)
    venv, base = cache / name, shared(cache)
    done = venv / "installed"
    if done.exists() and done.read_text() == wanted:
        return python(venv)
    shutil.rmtree(venv, ignore_errors=True)
    run(python(base), "-m", "venv", venv)
    (site(venv) / "torch.pth").write_text(f"{site(base)}\n")
    if packages := framework.get("packages"):
        install(venv, *packages)
    if pinned := framework.get("pinned"):
        install(venv, "--no-deps", *pinned)
    done.write_text(wanted)
    return python(venv)


def main():
    name, cache = sys.argv[1], pathlib.Path(sys.argv[2]).absolute()
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        print(environment(name, cache))


if __name__ == "__main__":
    main()

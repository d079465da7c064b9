"""Lays out what a deb and an rpm hold, and has nfpm write them; has cyclonedx-gomod write the bill of materials.

dist.py calls it. The programs are those of tools.mod; they are built into .cache.
"""

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from calendar import timegm
from email.utils import formatdate
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# What the pages link to lies beside them, as it does here.
DOCS = ("README.md", "CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs", "examples", "recipes/README.md", "recipes/CONFORMANCE.md")
# Debian's own; CHANGELOG.md lies beside it.
CHANGELOG = """\
gpurun ({version}) unstable; urgency=medium

  * CHANGELOG.md says what changed.

 -- The gpurun authors <gpurun@users.noreply.github.com>  {date}
"""
SHELLS = {"bash": "gpurun.bash", "zsh": "_gpurun", "fish": "gpurun.fish"}


def tools(run, go, cache):
    """The folder of nfpm and cyclonedx-gomod, which are built where they are not there."""
    wanted = hashlib.sha256((HERE / "tools.sum").read_bytes() + (HERE / "tools.mod").read_bytes()).hexdigest()[:12]
    home = cache / f"tools-{wanted}"
    if not home.exists():
        print("gpurun: building nfpm and cyclonedx-gomod into .cache", file=sys.stderr)
        fresh = cache / f"tools-{wanted}.{os.getpid()}"
        fresh.mkdir(parents=True)
        run(go, "build", f"-modfile={HERE}/tools.mod", "-mod=readonly", "-buildvcs=false", "-trimpath", "-o", f"{fresh}/", "tool",
            env=dict(os.environ, CGO_ENABLED="0"))
        os.rename(str(fresh), str(home))
    return home


def quiet(command, folder, env):
    """The output of a command; what else it says is shown where it fails."""
    done = subprocess.run([str(word) for word in command], cwd=str(folder), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        sys.exit(f"gpurun: error: {command[0]} ended with {done.returncode}: {(done.stdout + done.stderr).decode()}")
    return done.stdout.decode()


def packed(data):
    return gzip.compress(data, 9, mtime=0)


def stage(folder, run, host, licences):
    """Lays out what is the same for all architectures; host is a gpurun that runs here."""
    for name in ("bin", "man", "completion", "doc", "licence"):
        (folder / name).mkdir(parents=True)
    main = run(host, "help", "man")
    pages = {"gpurun": main}
    for verb in re.findall(r"\\fBgpurun-([a-z-]+)\(1\)", main):
        pages[f"gpurun-{verb}"] = run(host, "help", "man", verb)
    for name, text in pages.items():
        (folder / "man" / f"{name}.1.gz").write_bytes(packed(text.encode()))
    for shell, name in SHELLS.items():
        (folder / "completion" / name).write_text(run(host, "completion", shell))
    for name in run("git", "ls-files", "-z", "--", *DOCS).split("\0"):
        if not name or Path(name).name.startswith("."):
            continue
        to = folder / "doc" / name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(ROOT / name), str(to))
    shutil.copyfile(str(HERE / "copyright"), str(folder / "copyright"))
    shutil.copyfile(str(ROOT / "LICENSE"), str(folder / "licence" / "LICENSE"))
    (folder / "licence" / "THIRD-PARTY-LICENSES.txt").write_text(licences, encoding="utf-8")
    for path in sorted(folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def package(folder, tool, binary, built, version, out):
    """Writes a deb and an rpm of a binary into out."""
    shutil.copyfile(str(binary), str(folder / "bin" / "gpurun"))
    seconds = timegm(built.time)
    (folder / "changelog.gz").write_bytes(packed(CHANGELOG.format(version=version, date=formatdate(seconds)).encode()))
    env = dict(os.environ, PACKAGE_ARCH=built.arch, PACKAGE_VERSION=version, SOURCE_DATE_EPOCH=str(seconds))
    for kind in ("deb", "rpm"):
        quiet([tool, "package", "--config", HERE / "nfpm.yaml", "--packager", kind, "--target", out], folder, env)


def materials(tool, binary, version, to):
    """Writes the bill of materials of a binary, in CycloneDX's JSON."""
    # Licences are read from the modules that it was built from, without the network. The checksum
    # database is off too: go.sum has verified the modules, and a cache that only a build filled
    # does not remember the database's answers.
    text = quiet([tool, "bin", "-json", "-noserial", "-notimestamp", "-std", "-licenses", "-assert-licenses", "-version", version, binary],
                 ROOT, dict(os.environ, GOPROXY="off", GOSUMDB="off"))
    bill = json.loads(text)
    for written in bill["metadata"]["tools"]:
        written.pop("hashes", None)  # of the tool as it was built here
    bill["metadata"]["component"]["licenses"] = [{"license": {"id": "Apache-2.0"}}]
    for component in bill["components"]:
        if component["name"] == "std":
            component["licenses"] = [{"license": {"id": "BSD-3-Clause"}}]
    to.write_text(json.dumps(bill, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

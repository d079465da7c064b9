"""Builds what users install.

    dist.py build OUT            wheels, debs, rpms and plain binaries for both architectures, each binary's bill
                                 of materials, an environment module, and the SHA-256 sums of them all
    dist.py binary OUT           the plain binary for this machine's architecture
    dist.py wheel BINARY OUT     a wheel of a binary, which says itself what it was built for, and from what
    dist.py version VERSION...   versions of Go's as Python's packages spell them, a line each
    dist.py packaged VERSION...  the same as debs and rpms spell them

The binaries need glibc 2.17 or newer, which zig's C compiler links against; it is
installed into .cache. What is built depends on the commit and on Go's and zig's
versions only: not on the folder, the time or the machine. go is $GO.
"""

import base64
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from pathlib import Path

import packages

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".cache"
GO = os.environ.get("GO") or "go"
HOME = "https://github.com/gpurun/gpurun"
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # Go's names, and those of wheels
GLIBC = "2.17"
PLATFORMS = ("manylinux_2_17_{}", "manylinux2014_{}")  # two names of what has that glibc
SUMS = "SHA256SUMS"
LICENCES = "THIRD-PARTY-LICENSES.txt"

METADATA = """\
Metadata-Version: 2.4
Name: gpurun
Version: {version}
Summary: Runs a PyTorch training job in place of torchrun, and rescues it from running out of memory
License-Expression: Apache-2.0
License-File: LICENSE
License-File: {licences}
Project-URL: Source, {home}
Project-URL: Changelog, {home}/blob/main/CHANGELOG.md
Classifier: Environment :: Console
Classifier: Environment :: GPU :: NVIDIA CUDA
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Go
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Description-Content-Type: text/markdown

{readme}"""


def die(error, hint):
    sys.exit(f"gpurun: error: {error}\ngpurun: hint: {hint}")


def run(*command, env=None):
    """The output of a command, which is run in the repository; its errors go to stderr."""
    done = subprocess.run([str(word) for word in command], cwd=str(ROOT), env=env, stdout=subprocess.PIPE)
    if done.returncode:
        die(f"{command[0]} ended with {done.returncode}", "see what it says above")
    return done.stdout.decode()


def zig():
    """The path of zig, which is installed where the version that is asked for is not there."""
    wanted = HERE / "requirements.txt"
    home = CACHE / ("zig-" + hashlib.sha256(wanted.read_bytes()).hexdigest()[:12])
    if not home.exists():
        if not importlib.util.find_spec("ensurepip"):
            die(f"{sys.executable} cannot make a virtual environment", "run apt-get install python3-venv as root")
        print("gpurun: installing zig into .cache", file=sys.stderr)
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=str(CACHE)) as scratch:
            venv.create(f"{scratch}/venv", with_pip=True)
            run(f"{scratch}/venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                "--require-hashes", "--only-binary", ":all:", "--target", f"{scratch}/zig", "-r", wanted)
            os.rename(f"{scratch}/zig", str(home))
    return home / "ziglang" / "zig"


def compiled(arch, compiler, binary):
    """Builds gpurun for Linux on arch, with NVML."""
    cache = str(CACHE / "zigcache")
    env = dict(os.environ, CGO_ENABLED="1", GOOS="linux", GOARCH=arch, GOAMD64="v1", GOARM64="v8.0",
               CC=f"'{HERE}/cc'",
               CGO_CFLAGS=f"-O2 '-include{HERE}/nvml_weak.h'",
               # NVML's functions are there once its library is loaded, not when gpurun starts.
               CGO_LDFLAGS="-O2 -Wl,-z,lazy",
               ZIG=str(compiler), ZIG_TARGET=f"{MACHINES[arch]}-linux-gnu.{GLIBC}",
               ZIG_GLOBAL_CACHE_DIR=cache, ZIG_LOCAL_CACHE_DIR=cache)
    # A build's id depends on the compiler's path.
    run(GO, "build", "-buildvcs=auto", "-mod=readonly", "-trimpath", "-ldflags=-s -w -buildid=", "-o", binary, "./cmd/gpurun", env=env)


class Built:
    """What a binary says of itself: arch, version as Go spells it, and the time of its commit."""

    def __init__(self, binary):
        info = json.loads(run(GO, "version", "-m", "-json", binary))
        settings = {setting["Key"]: setting.get("Value", "") for setting in info["Settings"]}
        self.arch = settings["GOARCH"]
        self.version = info["Main"].get("Version", "")
        self.time = time.strptime(settings.get("vcs.time", "1980-01-01T00:00:00Z"), "%Y-%m-%dT%H:%M:%SZ")[:6]


GO_VERSION = re.compile(r"""v(?P<release>\d+\.\d+\.\d+)
    (?:-(?P<kind>alpha|beta|rc)\.?(?P<number>\d+))?
    (?:[-.](?:0\.)?(?P<time>\d{14})-(?P<commit>[0-9a-f]{12}))?  # of a commit that has no tag
    (?P<dirty>\+dirty)?""", re.VERBOSE)


def parts(version, packages):
    """The parts of a version of Go's; those packages have none for another."""
    m = GO_VERSION.fullmatch(version)
    if not m:
        die(f"{version} is no version that {packages} know", "tag releases v1.2.3 or v1.2.3-rc.1")
    return m


def pep440(version):
    """A version of Go's as Python's packages spell it; both have the same order."""
    if version in ("", "(devel)"):
        return "0.0.0.dev0"
    m = parts(version, "Python's packages")
    spelt = m["release"]
    if m["kind"]:
        spelt += {"alpha": "a", "beta": "b", "rc": "rc"}[m["kind"]] + m["number"]
    if m["time"]:
        # Go counts it after the pre-release, and before the release.
        spelt += (".post1" if m["kind"] else "") + ".dev" + m["time"]
    local = (["g" + m["commit"]] if m["commit"] else []) + (["dirty"] if m["dirty"] else [])
    return spelt + ("+" + ".".join(local) if local else "")


def packaged(version):
    """A version of Go's as debs and rpms spell it; all have the same order."""
    if version in ("", "(devel)"):
        return "0.0.0~0"
    m = parts(version, "packages")
    before = ([m["kind"] + m["number"]] if m["kind"] else []) + ([m["time"], "g" + m["commit"]] if m["time"] else [])
    # What follows a tilde comes before the version without it.
    return m["release"] + ("~" + ".".join(before) if before else "") + (m["dirty"] or "")


def third_party(*more):
    """The licences of all that is in a binary: its modules', Go's own, and those of the folders more."""
    listed = run(GO, "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}\t{{.Dir}}{{end}}{{end}}", "./cmd/gpurun",
                 env=dict(os.environ, CGO_ENABLED="1", GOOS="linux"))  # those with NVML
    folders = sorted(set(tuple(line.split("\t")) for line in listed.splitlines() if line))
    folders.insert(0, ("Go", run(GO, "env", "GOROOT").strip()))
    text = ""
    for name, folder in folders + list(more):
        found = sorted(path for path in Path(folder).iterdir() if re.match(r"(LICEN[CS]E|NOTICE|COPYING)", path.name))
        if not found:
            die(f"{name} has no licence in {folder}", "it cannot be passed on without")
        for path in found:
            text += f"{'=' * 80}\n{name}: {path.name}\n{'=' * 80}\n\n{path.read_text(encoding='utf-8').strip()}\n\n"
    return text


def metadata(version):
    # What the README links to is not in the wheel.
    readme = re.sub(r"\]\((?!https?:|#)", f"]({HOME}/blob/main/", (ROOT / "README.md").read_text(encoding="utf-8"))
    return METADATA.format(version=version, home=HOME, licences=LICENCES, readme=readme)


def wheel(binary, out, licences):
    """Writes a wheel of the binary into the folder out. The same binary gives the same bytes."""
    built = Built(binary)
    version = pep440(built.version)
    tags = [f"py3-none-{platform.format(MACHINES[built.arch])}" for platform in PLATFORMS]
    described = "Wheel-Version: 1.0\nGenerator: gpurun\nRoot-Is-Purelib: false\n" + "".join(f"Tag: {tag}\n" for tag in tags)
    info = f"gpurun-{version}.dist-info"
    files = {
        f"gpurun-{version}.data/scripts/gpurun": Path(binary).read_bytes(),
        f"{info}/METADATA": metadata(version).encode(),
        f"{info}/WHEEL": described.encode(),
        f"{info}/licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
        f"{info}/licenses/{LICENCES}": licences.encode(),
    }
    record = "".join(f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    platforms = ".".join(platform.format(MACHINES[built.arch]) for platform in PLATFORMS)
    with zipfile.ZipFile(f"{out}/gpurun-{version}-py3-none-{platforms}.whl", "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, built.time)
            entry.create_system = 3  # Unix, whose modes follow
            entry.external_attr = (0o100755 if name.endswith("/scripts/gpurun") else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data, compresslevel=9)


def build(out):
    out = Path(out)
    compiler = zig()
    licences = third_party(("zig", compiler.parent))
    with tempfile.TemporaryDirectory(dir=str(CACHE)) as scratch, tempfile.TemporaryDirectory(dir=str(CACHE)) as staged:
        made = Path(scratch)
        (made / LICENCES).write_text(licences, encoding="utf-8")
        for arch, machine in MACHINES.items():
            print(f"gpurun: building for {machine}", file=sys.stderr)
            compiled(arch, compiler, made / f"gpurun-linux-{machine}")
            wheel(made / f"gpurun-linux-{machine}", made, licences)
        finish(made, Path(staged), licences)
        # The module has its version from its own name.
        shutil.copyfile(str(HERE / "module.lua"), str(made / f"gpurun-{pep440(Built(made / f'gpurun-linux-{machine}').version)}.lua"))
        files = sorted(made.iterdir())
        sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
        out.mkdir(parents=True, exist_ok=True)
        for old in [*out.glob("gpurun[-_]*"), *out.glob(SUMS)]:
            old.unlink()
        for path in files:
            shutil.move(str(path), str(out / path.name))
    (out / SUMS).write_text(sums)
    print(sums, end="")


def finish(made, scratch, licences):
    """Adds debs, rpms and bills of materials to the binaries in made."""
    tools = packages.tools(run, GO, CACHE)
    print("gpurun: writing packages and bills of materials", file=sys.stderr)
    host = scratch / "gpurun"
    run(GO, "build", "-trimpath", "-o", host, "./cmd/gpurun", env=dict(os.environ, CGO_ENABLED="0"))
    layout = scratch / "layout"
    packages.stage(layout, run, host, licences)
    for machine in MACHINES.values():
        binary = made / f"gpurun-linux-{machine}"
        built = Built(binary)
        packages.package(layout, tools / "nfpm", binary, built, packaged(built.version), made)
        packages.materials(tools / "cyclonedx-gomod", binary, built.version or "(devel)", made / f"gpurun-linux-{machine}.cdx.json")


def main(words):
    if len(words) == 2 and words[0] == "build":
        build(words[1])
    elif len(words) == 2 and words[0] == "binary":
        compiled(run(GO, "env", "GOARCH").strip(), zig(), Path(words[1]).resolve())
    elif len(words) == 3 and words[0] == "wheel":
        wheel(Path(words[1]).resolve(), words[2], third_party())
    elif len(words) > 1 and words[0] == "version":
        print(*map(pep440, words[1:]), sep="\n")
    elif len(words) > 1 and words[0] == "packaged":
        print(*map(packaged, words[1:]), sep="\n")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])

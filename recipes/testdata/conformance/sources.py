"""Scripts of frameworks that no registry has, from checkouts at hand.

They lie in the folder that GPURUN_SOURCES names, else in .cache/conformance/sources,
each under the name of its repository. A file counts only if it is the one that
parse.py was written for: git's own hash of it says so.
"""

import hashlib
import os
import pathlib

HERE = pathlib.Path(__file__).resolve().parent


def checkout(repository, commit):
    """The folder of a repository ("owner/name"), which should be at a commit."""
    root = pathlib.Path(os.environ.get("GPURUN_SOURCES") or HERE.parents[2] / ".cache" / "conformance" / "sources")
    folder = root / repository.split("/")[1]
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is missing: check out https://github.com/{repository} at {commit} there")
    return folder


def blob(path):
    """The hash that git gives to a file's content."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def file(repository, commit, path, wanted):
    """A file of a checkout, with the start of its hash compared."""
    found = checkout(repository, commit) / path
    if not blob(found).startswith(wanted):
        raise ValueError(f"{found} is not that of {commit}: its hash is {blob(found)}, want {wanted}")
    return found

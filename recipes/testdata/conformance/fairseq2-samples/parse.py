"""What fairseq2's recipe for language models makes of a command, with batches of samples."""

from languagemodels import PACKAGES, read  # noqa: F401


def parse(case):
    return read(case, "batch_size")

"""What fairseq2's recipe for language models makes of a command."""

from languagemodels import PACKAGES, read  # noqa: F401


def parse(case):
    return read(case, "max_num_tokens")

# What the process reports of its loss: how it is scaled with another accumulation, and whether
# all batches had one shape. strategy.LossSeen names the keys.
from . import process


def scale(word, reason, weighted=False):
    """Reports whether an optimizer step of more micro batches keeps the scale of the loss:
    "kept", "wrong", or "" for not known."""
    if known().get("uniform") == "no" and word != "wrong":
        reason = known().get("reason")
    say(scale=word, reason=reason, weighted=weighted)


def no(why):
    """Reports that some samples weigh more than others where the batch is divided."""
    say(uniform="no", **({} if known().get("scale") == "wrong" else {"reason": why}))


def known():
    return process.told.get("loss") or {}


def say(**words):
    process.told["loss"] = {key: value for key, value in dict(known(), **words).items() if value}
    process.save()

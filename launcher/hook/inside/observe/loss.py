# What the process reports of its loss: how it is scaled with another accumulation, and whether
# all batches had one shape. strategy.LossSeen names the keys.
from ..base import process

MOST_NUMBERS = 64


def scale(word, reason, weighted=False):
    """Reports whether an optimizer step of more micro batches keeps the scale of the loss:
    "kept", "wrong", or "" for not known."""
    if known().get("uniform") == "no" and word != "wrong":
        reason = known().get("reason")
    say(scale=word, reason=reason, weighted=weighted)


def no(why):
    """Reports that some samples weigh more than others where the batch is divided."""
    say(uniform="no", **({} if known().get("scale") == "wrong" else {"reason": why}))


def model_rows(word, reason):
    """Reports whether the model computes each row of a batch by itself, as the process that ran out of
    memory has shown."""
    say(model_rows=word, model_rows_reason=reason)


def numbers(more):
    """Reports numbers of the training that its batch should not change."""
    found = dict(known().get("numbers") or {}, **more)
    say(numbers={k: v for k, v in list(found.items())[:MOST_NUMBERS] if v is not None and abs(v) < float("inf")})


def known():
    return process.told.get("loss") or {}


def say(**words):
    process.told["loss"] = {key: value for key, value in dict(known(), **words).items() if value}
    process.save()

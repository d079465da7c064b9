# What the process says of its loss: how it is scaled with another accumulation, and whether
# all batches had one shape. strategy.LossSeen names the keys.
process = load("process")


def scale(word, reason, weighted=False):
    """Says whether an optimizer step of more micro batches keeps the scale of the loss:
    "kept", "wrong", or "" for not known."""
    say(scale=word, reason=reason, weighted=weighted)


def say(**words):
    told = dict(process.told.get("loss") or {}, **words)
    process.told["loss"] = {key: value for key, value in told.items() if value}
    process.save()

# Settings in the code: gpurun's orders change the keyword arguments of a call that sets
# up the job, each from a value that gpurun knows to another. One line reports it.
import functools
import inspect
import sys

from ..base import process, wall, words


# Knobs that are changed together or not at all: their product is the batch.
BATCH = ("micro_batch_size", "gradient_accumulation_steps")

said = set()  # lines
made: dict = {}  # by order's place: whether it was applied


def orders(call):
    """Return the orders for a call, as (place, order)."""
    if not process.orders().get("hooks"):
        return []
    return [(i, o) for i, o in enumerate(process.orders().get("calls") or []) if known(o["call"]) == call]


def known(call):
    """Return the name of a call, the same for both packages of Lightning."""
    for package in ("lightning.pytorch.", "pytorch_lightning."):
        if call.startswith(package):
            return "lightning." + call[len(package):]
    return call


def change(call, who, get, put):
    """Changes one call's values. Who is its name for people; get and put read and set a
    keyword, and get raises LookupError where there is none of the name. A value that is
    not the expected one is left unchanged, and reported."""
    due = [(i, o) for i, o in orders(call) if meant(o, get)]
    wrong = {i: why for i, o in due for why in [against(i, o, who, get)] if why is not None}
    batch = next((wrong[i] for i, o in due if o.get("knob") in BATCH and wrong.get(i)), "")
    changed = []
    for i, o in due:
        why = wrong.get(i) or (batch if o.get("knob") in BATCH else "")
        if why:
            if not made.get(i):
                failed(o, why)
        elif i not in wrong:
            old = get(o["keyword"])
            put(o["keyword"], o["to"])
            made[i] = True
            applied(o, old)
            changed.append("%s %s→%s" % (o["keyword"], old, o["to"]))
    if changed:
        tell("%s: %s" % (who, ", ".join(changed)))
    if due:
        process.save()


def meant(o, get):
    """Return whether a call is one of those that an order is about."""
    try:
        return all(get(keyword) == value for keyword, value in (o.get("where") or {}).items())
    except LookupError:
        return False


def against(i, o, who, get):
    """Return why a call is not to be changed; "" if its arguments come from a call that was
    changed before, None for no reason."""
    try:
        now = get(o["keyword"])
    except LookupError:
        return "%s has no %s" % (who, o["keyword"])
    if now == o["to"] and made.get(i):
        return ""
    if o.get("from") is not None and now != o["from"]:
        return "%s has %s=%r, not %r" % (who, o["keyword"], now, o["from"])
    return None


def failed(o, why):
    """Notes what could not be changed; without a knob it is a problem of the probe."""
    if o.get("knob"):
        process.note("failed", {o["knob"]: why})
    else:
        process.trouble(why)


def applied(o, old):
    knob = o.get("knob")
    if not knob:
        return
    before, after = words.word(knob, o["keyword"], o.get("from") if old is None else old), words.word(knob, o["keyword"], o["to"])
    process.note("applied", {knob: ["" if before is None else before, after]})
    (process.told.get("failed") or {}).pop(knob, None)


def tell(line):
    if line not in said:
        said.add(line)
        process.say(line)


def rearranged(call, who, function, args, kwargs):
    """Return a call's arguments after the changes. Args has the instance or class first."""
    if not orders(call):
        return args, kwargs
    bound = inspect.signature(function).bind_partial(*args, **kwargs)
    kinds = bound.signature.parameters
    open_ended = next((n for n, p in kinds.items() if p.kind is p.VAR_KEYWORD), None)

    def get(keyword):
        if keyword in bound.arguments:
            return bound.arguments[keyword]
        if open_ended and keyword in bound.arguments.get(open_ended, {}):
            return bound.arguments[open_ended][keyword]
        if keyword not in kinds and not open_ended:
            raise LookupError(keyword)
        default = kinds[keyword].default if keyword in kinds else None
        return None if default is inspect.Parameter.empty else default

    def put(keyword, value):
        if keyword in kinds:
            bound.arguments[keyword] = value
        else:
            bound.arguments.setdefault(open_ended, {})[keyword] = value

    change(call, who, get, put)
    return bound.args, bound.kwargs


def constructor(kind, call, after=None):
    """Makes a class's __init__ take the arguments that the orders for a call give."""
    replaced(kind, "__init__", call, lambda self: type(self).__name__, after)


def method(kind, name, call):
    """Makes a method take the arguments that the orders for a call give."""
    if orders(call):
        replaced(kind, name, call, lambda self: "%s.%s" % (type(self).__name__, name))


def replaced(kind, name, call, who, after=None):
    plain = getattr(kind, name)

    @functools.wraps(plain)
    def changed(self, *args, **kwargs):
        try:
            (_, *args), kwargs = rearranged(call, who(self), plain, (self, *args), kwargs)
        except Exception as e:
            wall.failed(e)
        got = plain(self, *args, **kwargs)
        if after is not None:
            after(self)
        return got

    setattr(kind, name, changed)


def settle_all():
    """Reports which orders found no call by the first step, and whether the two that make the
    batch were both carried out."""
    if not process.orders().get("hooks"):
        return
    due = list(enumerate(process.orders().get("calls") or []))
    for i, o in due:
        if not made.get(i) and o.get("knob") not in (process.told.get("failed") or {}):
            failed(o, "%s was not called as gpurun takes it to be" % o["call"])
    batch = [(i, o) for i, o in due if o.get("knob") in BATCH]
    if any(made.get(i) for i, _ in batch) and not all(made.get(i) for i, _ in batch):
        process.note("failed", {o["knob"]: "only one of batch and accumulation could be changed" for i, o in batch if made.get(i)})


def arrived(name, torch):
    """Called when torch is there: its own call is that of DataLoader."""
    if orders("torch.utils.data.DataLoader"):
        constructor(sys.modules["torch.utils.data.dataloader"].DataLoader, "torch.utils.data.DataLoader")

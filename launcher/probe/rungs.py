# The rungs that are turned inside a running job: this is all that the probe calls. The
# files beside this one are loaded when one of them is asked, by their path: no module
# of the program's has a name in common with them.
import os

ORDER = (
    ("attention", "attention"),
    ("activation_checkpointing", "checkpointing"),
    ("precision", "autocast"),
    ("offload_activations", "offload"),  # last: what it may hold depends on the others
)


def survey(root):
    """Gives for each knob why it could not be turned inside this model, "" if it could."""
    return {knob: looked(load(name), root) for knob, name in ORDER}


def looked(rung, root, *value):
    try:
        return rung.refusal(root, *value)
    except Exception as e:
        return "the model could not be looked at: " + describe(e)


def apply(root, turn, tell=None, count=None):
    """Turns what turn asks for: {knob: value}.

    It is called while the first call of root begins, and gives {"applied": {knob: [old,
    new]}, "refused": {knob: reason}, "failed": {knob: reason}}. It never raises: where
    something fails, the job is as it was. tell(knob, reason) is called where a knob has
    to be given up in a later step.
    """
    result = {"applied": {}, "refused": {}, "failed": {}}
    known = dict(ORDER)
    for knob in turn:
        if knob not in known:
            result["refused"][knob] = "it cannot be turned inside the process"
    for knob, name in ORDER:
        if knob in turn:
            one(root, knob, name, turn[knob], tell, count, result)
    return result


def one(root, knob, name, value, tell, count, result):
    try:
        rung = load(name)
        if value not in rung.VALUES:
            result["refused"][knob] = "it cannot be turned to %s inside the process" % (value,)
            return
        reason = looked(rung, root, value)
        if reason:
            result["refused"][knob] = reason
            return
        more = {"count": count} if name == "checkpointing" else {}
        result["applied"][knob] = rung.turn(root, value, teller(tell, knob), **more)
    except Exception as e:
        result["failed"][knob] = describe(e)


def teller(tell, knob):
    """Gives what tells of a knob once, whatever becomes of the telling."""
    told = []

    def once(reason):
        if tell is None or told:
            return
        told.append(reason)
        try:
            tell(knob, reason)
        except Exception:
            pass

    return once


def describe(e):
    return "%s: %s" % (type(e).__name__, str(e)[:500])


class Room:
    """One of the files beside this one, as loaded."""

    def __init__(self, name):
        path = os.path.join(os.path.dirname(load.__code__.co_filename), name + ".py")
        self.__dict__.update(__name__="gpurun." + name, __file__=path, load=load)
        with open(path, encoding="utf-8") as f:
            exec(compile(f.read(), path, "exec"), self.__dict__)


def load(name):
    """Gives a file beside this one, each loaded once."""
    if name not in LOADED:
        LOADED[name] = Room(name)
    return LOADED[name]


LOADED = {}

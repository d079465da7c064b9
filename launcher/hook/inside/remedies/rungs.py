# The remedies: those that are turned on inside a running job from its first call on, and those for calls of the root
# that ran out of memory.
from ..base import wall
from . import attention, autocast, checkpointing, losscalls, offload, split, states

ORDER = (
    ("attention", attention),
    ("activation_checkpointing", checkpointing),
    ("forward_parts", split),
    ("loss_parts", losscalls),
    ("precision", autocast),
    ("offload_activations", offload),  # last: what it may hold depends on the others
    ("offload_optimizer", states),
)
IN_PLACE = {kind.name: kind for kind in (checkpointing.Recompute, split.InParts, offload.Offload, states.States)}


def survey(root):
    """Return for each knob why it could not be turned inside this model, "" if it could."""
    return {knob: looked(rung, root) for knob, rung in ORDER}


def looked(rung, root, *value):
    try:
        return rung.refusal(root, *value)
    except Exception as e:
        return "the model could not be looked at: " + wall.said(e)


def apply(root, turn, tell=None, count=None):
    """Applies the values of turn: {knob: value}.

    It is called while the first call of root begins, and returns {"applied": {knob: [old,
    new]}, "refused": {knob: reason}, "failed": {knob: reason}}. It never raises: where
    something fails, the job stays unchanged. tell(knob, reason) is called where a knob has
    to be removed in a later step.
    """
    result = {"applied": {}, "refused": {}, "failed": {}}
    known = dict(ORDER)
    for knob in turn:
        if knob not in known:
            result["refused"][knob] = "it cannot be turned inside the process"
    for knob, rung in ORDER:
        if knob in turn:
            one(root, knob, rung, turn[knob], tell, count, result)
    return result


def one(root, knob, rung, value, tell, count, result):
    try:
        if value not in rung.VALUES:
            result["refused"][knob] = "it cannot be turned to %s inside the process" % (value,)
            return
        reason = looked(rung, root, value)
        if reason:
            result["refused"][knob] = reason
            return
        more = {"count": count} if rung is checkpointing else {}
        result["applied"][knob] = rung.turn(root, value, teller(tell, knob), **more)
    except Exception as e:
        result["failed"][knob] = wall.said(e)


def teller(tell, knob):
    """Return a function that reports a knob once, whether or not that fails."""
    told = []

    def once(reason):
        if tell is not None and not told:
            told.append(reason)
            tell(knob, reason)

    return wall.alone(once)

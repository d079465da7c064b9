# Calls without gradients before the root is known, such as those of an evaluation before the first step: one that runs
# out of memory is made again in parts of its batch. The root's own calls are inplace.py's.
import typing
import weakref

from ..base import ranout, wall
from ..model import blocks, exclusions, listed
from ..remedies import split
from . import inplace

guards: typing.Any = weakref.WeakKeyDictionary()  # by module, the guard of one that ran out of memory


def call(plain, module, args, kwargs):
    """Call a module that is called outside all others."""
    if blocks.unwrap(module) is not module or exclusions.compiled(module):
        return plain(module, *args, **kwargs)  # it calls the module that it is around
    if module in guards:
        return guards[module].evaluate(plain, module, args, kwargs)
    before = split.numbers(devices(module))
    try:
        return plain(module, *args, **kwargs)
    except BaseException as e:
        failure, trace = e, e.__traceback__
    if not ranout.is_one(failure):
        raise failure
    wall.raises(plain, failure)
    remedy = guarded(module)
    return remedy.evaluate_again(plain, args, kwargs, before, failure, trace)


def devices(module):
    return sorted({p.device for p in listed.parameters(module) if p.device.type == "cuda"}, key=str)


def guarded(module):
    """Return the remedy for a module's calls."""
    guard = guards[module] = inplace.Guard(module, {"rungs": [split.InParts.name]}, exclusions.barred(module))
    return guard.remedies[0]

# The wall between the job's code and the hook. Wherever the job's code comes into the hook, it comes through one of
# the functions here. What fails inside the hook is noted, the hook switches itself off in this process, and the job
# gets what it would have got without the hook: the result of its own function, or its own error.
#
# Where a remedy is on, the pass cannot always be what the job alone would have computed. Then it ends with Differs,
# which names the hook: a silent wrong step would be worse.
import os
import typing

from . import rank, ranout

HERE = os.path.dirname(os.path.dirname(__file__)) + os.sep

# How much of the hook is off. After a failure in what only looks, remedies that are on stay on: the job needs them.
LOOKS, ALL = 1, 2

# off: one of them, 0 for nothing; raised: the id of an error of the job that the hook raises on purpose.
state: dict = {"off": 0, "raised": 0}


class Differs(RuntimeError):
    """Ends a pass whose results would differ from the job's own."""


class Own:
    """A function of the job, for one call of it through the hook: what it returned, or raised."""

    # Set by who makes it: a constructor would be one more call in each step.
    function: typing.Any
    result = error = trace = context = None
    open, begun, ended = True, False, False

    def __call__(self, *args, **kwargs):
        if not self.open:  # a block is called once more in the backward pass
            return self.function(*args, **kwargs)
        self.begun = True
        try:
            result = self.function(*args, **kwargs)
        except BaseException as e:
            self.error, self.trace, self.context = e, e.__traceback__, e.__context__
            raise
        self.result, self.ended, self.error, self.trace = result, True, None, None
        return result

    def gives(self, result):
        """Note the result that the caller gets."""
        self.result, self.ended, self.begun, self.error, self.trace = result, True, True, None, None

    def close(self):
        """Keep nothing: an error would keep its frames alive, and they this."""
        self.open, self.result, self.error, self.trace, self.context = False, None, None, None, None

    def settle(self, failure, level, args, kwargs):
        """Return, or raise, what the caller gets after a failure of the hook."""
        if self.begun and not self.ended and self.error is None and ran_out(failure):
            self.close()
            raise failure
        failed(failure, level)
        error, trace, context = self.error, self.trace, self.context
        result, begun, ended = self.result, self.begun, self.ended
        self.close()
        if error is not None:
            error.__context__ = context
            try:
                raise error.with_traceback(trace)
            finally:
                del error, trace, context
        if ended:
            return result
        if begun:
            raise Differs("gpurun's hook failed in a pass that a remedy had begun: %s" % said(failure))
        return self.function(*args, **kwargs)


def part(own, *args, **kwargs):
    """Call the job's function for a part of what its caller wants: its result is not the caller's."""
    return inner(own, plain(own), *args, **kwargs)


def inner(own, function, *args, **kwargs):
    """Call a function of the job that is a part of the one that was called."""
    if isinstance(own, Own) and own.open:
        own.begun, own.ended, own.result = True, False, None
    return function(*args, **kwargs)


def plain(own):
    """Return the function of the job."""
    return own.function if isinstance(own, Own) else own


def gives(own, result):
    if isinstance(own, Own):
        own.gives(result)


def raises(own, error):
    """Note the error of the job that its caller gets, unless a result follows."""
    if isinstance(own, Own) and own.open:
        own.error, own.trace, own.context = error, error.__traceback__, error.__context__


def let_go(own):
    """Keep the result of the job's function no longer: it is computed again."""
    if isinstance(own, Own):
        own.result, own.ended = None, False


MARKS = frozenset((Own.__call__.__code__, inner.__code__))


def jobs(error):
    """Return whether an error is the job's own: it came out of one of the job's functions, or ends the process."""
    if not isinstance(error, Exception) or isinstance(error, Differs) or id(error) == state["raised"]:
        return True
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in MARKS:
            return True
        trace = trace.tb_next
    return False


def call(function, run, level, *args, **kwargs):
    """Return run(own, *args, **kwargs), which calls own, a function of the job, with these arguments or others."""
    if state["off"] >= level:
        return function(*args, **kwargs)
    own = Own()
    own.function = function
    try:
        found = run(own, *args, **kwargs)
        own.open, own.result = False, None
        return found
    except BaseException as e:
        if e is own.error or jobs(e):
            own.close()
            raise
        failure = e
    return own.settle(failure, level, args, kwargs)


def wrapped(function, run, level=LOOKS):
    """Return what replaces a function of the job: run(own, *args, **kwargs) calls it."""
    def around(*args, **kwargs):
        if state["off"] >= level:
            return function(*args, **kwargs)
        return call(function, run, level, *args, **kwargs)

    return around


def passes(run):
    """Return run(module, forward, args, kwargs), which calls a module of the job, behind the wall."""
    def through(module, forward, args, kwargs):
        if state["off"] >= ALL:
            return forward(module, *args, **kwargs)
        own = Own()
        own.function = forward
        try:
            found = run(module, own, args, kwargs)
            own.open, own.result = False, None
            return found
        except BaseException as e:
            if e is own.error or jobs(e):
                own.close()
                raise
            failure = e
        return own.settle(failure, ALL, (module,) + tuple(args), kwargs)

    return through


def guarded(function):
    """Keep what goes wrong in a part of the hook that only looks from the job. The wrapper then returns None, as
    it does once the hook is off."""
    def look(*args, **kwargs):
        if state["off"]:
            return None
        try:
            return function(*args, **kwargs)
        except Exception as e:
            failed(e)

    return look


def alone(function):
    """Keep what goes wrong from the job, as guarded does. It also runs where another part of the hook has failed."""
    def look(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception as e:
            failed(e)

    return look


def remedy(function):
    """Return a function for autograd to call in a pass that a remedy has changed: if it fails, so does the pass."""
    def run(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except BaseException as e:
            if jobs(e) or ran_out(e):
                raise
            failure = e
        failed(failure, ALL)
        raise Differs("gpurun's hook failed in a pass that a remedy had begun: %s" % said(failure))

    return run


def ran_out(error):
    """Return whether memory ran out in the hook, in a pass that a remedy has changed: that is no error of the hook."""
    return ranout.is_one(error)


def raising(error):
    """Note that the hook raises an error of the job on purpose."""
    state["raised"] = id(error)
    return error


def said(error):
    return "%s: %s" % (type(error).__name__, str(error)[:200])


def failed(error, level=LOOKS):
    """Note an error of the hook, and switch the hook off. Never fails."""
    first, state["off"] = level > state["off"], max(level, state["off"])
    try:
        rank.start["failed"](error, first and level == ALL)  # process.py's
    except Exception:
        pass
    # What its frames refer to may be the activations of a failed pass.
    error.__traceback__ = error.__context__ = None

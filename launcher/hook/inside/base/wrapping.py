# A function of the job and the one that stands in its place have the same names.
from . import wall


def like(function, wrapper):
    """Give a wrapper the names of the function that it wraps."""
    wrapper.__name__, wrapper.__doc__, wrapper.__module__ = function.__name__, function.__doc__, function.__module__
    wrapper.__qualname__ = function.__qualname__
    return wrapper


def put(owner, name, function):
    """Give a module or a class a function in place of another. Return what puts that back, unless somebody else has
    replaced it since."""
    own, plain = name in vars(owner), vars(owner).get(name)
    setattr(owner, name, function)

    def undo():
        if vars(owner).get(name) is function:
            setattr(owner, name, plain) if own else delattr(owner, name)

    return undo


def placed(kind, name, wrapper):
    """Give a class a method in place of another, as put does: pickle finds it by the name that it has there."""
    wrapper.__module__, wrapper.__qualname__ = kind.__module__, kind.__qualname__ + "." + name
    return put(kind, name, wrapper)


def replace(owner, name, run, static=False):
    """Have run(own, *args, **kwargs) stand in place of a function of the job, which it calls as own. Return what puts
    that back, unless somebody else has replaced it since."""
    plain = getattr(owner, name)
    mine = like(plain, wall.wrapped(plain, run))
    return put(owner, name, staticmethod(mine) if static else mine)

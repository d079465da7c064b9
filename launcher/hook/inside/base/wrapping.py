# A function of the job and the one that stands in its place have the same names.
from . import wall


def like(function, wrapper):
    """Give a wrapper the names of the function that it wraps."""
    wrapper.__name__, wrapper.__doc__, wrapper.__module__ = function.__name__, function.__doc__, function.__module__
    wrapper.__qualname__ = function.__qualname__
    return wrapper


def placed(kind, name, wrapper):
    """Give a class a method in place of another: pickle finds it by the name that it has there."""
    wrapper.__module__, wrapper.__qualname__ = kind.__module__, kind.__qualname__ + "." + name
    setattr(kind, name, wrapper)
    return wrapper


def replace(owner, name, run, static=False):
    """Have run(own, *args, **kwargs) stand in place of a function of the job, which it calls as own. Return what puts
    that back, unless somebody else has replaced it since."""
    plain = getattr(owner, name)
    mine = like(plain, wall.wrapped(plain, run))

    def put(function):
        setattr(owner, name, staticmethod(function) if static else function)

    put(mine)
    return lambda: put(plain) if getattr(owner, name) is mine else None

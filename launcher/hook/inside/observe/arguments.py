# What the job's parsers returned, by name: whole numbers and truth values alone, since a text may be a secret. They are
# read from what the parser's library made, without a call of the job's code.
import sys
import typing

from ..base import process, wall, wrapping

MOST, LONGEST, DEEPEST = 512, 100, 6


def arrived(name, module):
    """Listens to the parsers of a library."""
    if module is None:
        return
    for owner, function, listener in PARSERS[name]:
        kind = getattr(module, owner) if owner else module
        wrapping.replace(kind, function, listener, static=isinstance(vars(kind).get(function), staticmethod))


def after(values):
    """Return a listener that notes values of a call's result and its first argument."""
    def run(own, *args, **kwargs):
        found = own(*args, **kwargs)
        note(values, found, args[0] if args else None)
        return found

    return run


def before(own, *args, **kwargs):
    """Notes Hydra's configuration when the job's function is called with it."""
    for given in args + tuple(kwargs.values()):
        if type(given).__name__ == "DictConfig":
            note(lambda config, _: {k: v for k, v in (parts(config) or {}).items() if k != "hydra"}, given, None)
    return own(*args, **kwargs)


def of_function(own, function, *args, **kwargs):
    """Notes what fire calls a function with: it parses and calls it in one."""
    spec = sys.modules["fire.inspectutils"].GetFullArgSpec(function)

    def parses(own, *args, **kwargs):
        found = own(*args, **kwargs)
        note(lambda found, _: dict(spec.kwonlydefaults or {}, **dict(zip(spec.args, found[0][0]), **found[0][1])), found, None)
        return found

    parse = own(function, *args, **kwargs)
    return wall.wrapped(parse, parses)


def configured(own, *args, **kwargs):
    """Notes a configuration of OmegaConf's that is not one of Hydra's many."""
    found = own(*args, **kwargs)
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(__name__.split(".")[0]):
        frame = frame.f_back
    if frame is not None and not frame.f_globals.get("__name__", "").startswith(("hydra.", "omegaconf.")):
        note(lambda config, _: parts(config), found, None)
    return found


def parts(value):
    """Return the named parts of what a parser made, None where it is no such thing."""
    kind = type(value)
    if kind is dict:
        return value
    if kind.__module__.startswith("omegaconf."):
        content = fields(value).get("_content")
        return content if type(content) is dict else None
    return fields(value) if hasattr(kind, "__dataclass_fields__") or kind.__name__ == "Namespace" else None


def fields(value):
    return getattr(value, "__dict__", {})


@process.guarded
def note(values, found, first):
    known = dict(process.told.get("arguments") or {})
    collect(values(found, first), "", known, 0)
    if known:
        process.told["arguments"] = known
        process.save()


def collect(value, name, known, depth):
    """Adds the numbers in a value, and in its parts."""
    if type(value).__module__.startswith("omegaconf.nodes"):
        value = fields(value).get("_val")
    if type(value) in (int, bool):
        if name and len(name) <= LONGEST and abs(value) < 1 << 63 and (name in known or len(known) < MOST):
            known[name] = value
        return
    inner = parts(value) if depth < DEEPEST else None
    if inner is not None:
        for key, part in list(inner.items()):
            if type(key) is str:
                collect(part, name + "." + key if name else key, known, depth + 1)
    elif type(value) is tuple and depth == 0:  # several classes
        for each in value:
            collect(each, name, known, depth + 1)


# By module: the class that has the function, "" for none, the function, and what listens to it.
PARSERS: typing.Dict[str, tuple] = {
    "argparse": (("ArgumentParser", "parse_known_args", after(lambda found, _: dict(fields(found[0])))),),
    "transformers.hf_argparser": (("HfArgumentParser", "parse_dict", after(lambda found, _: found)),),
    "jsonargparse._core": (("ArgumentParser", "parse_args", after(lambda found, _: found)),),
    "click.core": (("Command", "make_context", after(lambda context, _: context.params)),),
    "typer._click.core": (("Command", "make_context", after(lambda context, _: context.params)),),
    "absl.flags._flagvalues": (
        ("FlagValues", "__call__", after(lambda _, flags: {k: fields(f).get("_value") for k, f in flags._flags().items()})),
    ),
    "fire.core": (("", "_MakeParseFn", of_function),),
    "tyro._cli": (("", "cli", after(lambda found, _: found)),),
    "pyrallis.argparsing": (("", "parse", after(lambda found, _: found)),),
    "hydra.core.utils": (("", "run_job", before),),
    "omegaconf.omegaconf": tuple(("OmegaConf", name, configured) for name in ("load", "from_cli", "merge")),
}

# Whether the job, or a library that it uses, handles an out-of-memory error itself: a caller is in
# the body of a try statement whose handler names such errors. Of each caller only its function is
# parsed: a large file takes longer than a step, and memory that has run out.
import ast
import inspect
import linecache
import os
import re
import sys
import typing

from . import ranout, wall

NAMED = re.compile(r"OutOfMemory|out.of.memory|MemoryError|should_reduce_batch_size|(?<![a-z])oom(?![a-z])", re.IGNORECASE)

known: dict = {}  # by file, first line and name, what handlers() found in a function
naming: dict = {}  # by file, the last line that names such errors, 0 for none


def by_a_caller():
    """Return the file and line of the caller that handles the error, "" if none does."""
    own, torch = wall.HERE, os.path.dirname(sys.modules["torch"].__file__) + os.sep
    for frame in ranout.frames_from(sys._getframe(1)):
        path = frame.f_code.co_filename
        for first, last, text in in_function(frame.f_code) if not path.startswith((own, torch)) else ():
            if first <= frame.f_lineno <= last and NAMED.search(text):
                return "%s:%d" % (os.path.basename(path), frame.f_lineno)
    return ""


def in_function(code):
    """Return what handlers() finds in the function, or the module, of a code object."""
    path, first = code.co_filename, code.co_firstlineno
    key = path, first, code.co_name
    if key in known:
        return known[key]
    known[key] = []
    lines = linecache.getlines(path)
    if path not in naming:
        naming[path] = max((i for i, line in enumerate(lines, 1) if NAMED.search(line)), default=0)
    if code.co_name == "<module>":
        first, block = 1, lines if naming[path] else []
    elif code.co_name.startswith("<") or first > naming[path]:  # an expression has no statements
        block = []
    else:
        block = inspect.getblock(lines[first - 1:])
    try:
        known[key] = handlers(block, first) if block else []
    except (SyntaxError, ValueError, RecursionError):
        pass  # it is no longer the file that runs
    return known[key]


def handlers(lines, number=1):
    """Return (first line, last line, what handles its exceptions) of each body that has handlers, in lines that may be
    indented. The first one has a number."""
    found = []
    node: typing.Any
    # One line is put before them.
    for node in ast.walk(ast.parse("".join(["if 1:\n" if lines[0][:1] in " \t" else "\n", *lines]))):
        if isinstance(node, ast.With):
            text = "".join(ast.dump(item.context_expr) for item in node.items if "suppress" in ast.dump(item.context_expr))
        elif isinstance(node, (ast.Try, getattr(ast, "TryStar", ast.Try))):
            text = "".join("".join(lines[each.lineno - 2:each.end_lineno - 1]) for each in node.handlers)
        else:
            continue
        if text:
            found.append((node.body[0].lineno + number - 2, node.body[-1].end_lineno + number - 2, text))
    return found

# Whether the job, or a library that it uses, handles an out-of-memory error itself: a caller is in
# the body of a try statement whose handler names such errors.
import ast
import linecache
import os
import re
import sys
import typing

NAMED = re.compile(r"OutOfMemory|out.of.memory|MemoryError|should_reduce_batch_size|(?<![a-z])oom(?![a-z])", re.IGNORECASE)

known: dict = {}  # by file, what handlers() found in it


def by_a_caller():
    """Return the file and line of the caller that handles the error, "" if none does."""
    own, torch = os.path.dirname(__file__) + os.sep, os.path.dirname(sys.modules["torch"].__file__) + os.sep
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith((own, torch)):
            for first, last, text in in_file(path):
                if first <= frame.f_lineno <= last and NAMED.search(text):
                    return "%s:%d" % (os.path.basename(path), frame.f_lineno)
        frame = frame.f_back
    return ""


def in_file(path):
    if path not in known:
        try:
            lines = linecache.getlines(path)
            known[path] = handlers(lines) if any(map(NAMED.search, lines)) else []  # to parse a large file takes longer than a step
        except (SyntaxError, ValueError, RecursionError):
            known[path] = []
    return known[path]


def handlers(lines):
    """Return (first line, last line, what handles its exceptions) of each body that has handlers."""
    found = []
    node: typing.Any
    for node in ast.walk(ast.parse("".join(lines))):
        if isinstance(node, ast.With):
            text = "".join(ast.dump(item.context_expr) for item in node.items if "suppress" in ast.dump(item.context_expr))
        elif isinstance(node, (ast.Try, getattr(ast, "TryStar", ast.Try))):
            text = "".join("".join(lines[each.lineno - 1:each.end_lineno]) for each in node.handlers)
        else:
            continue
        if text:
            found.append((node.body[0].lineno, node.body[-1].end_lineno, text))
    return found

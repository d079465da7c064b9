"""Runs scripts, each in a fork of one interpreter that has imported PyTorch: that takes a second.

Reads a line of JSON for each connection to the socket that is its argument, runs the script, and
answers with the exit code. It ends with its standard input.
"""
import atexit
import gc
import json
import os
import select
import socket
import sys
import threading
import types

import torch  # noqa: F401 what all of them have


def serve(path):
    """Gives the first request in a process for it; the process that accepts them never returns."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    print("listening", flush=True)
    gc.collect()
    gc.freeze()  # a collection in a fork would copy all that is here
    children = set()
    while True:
        if sys.stdin in select.select([sys.stdin, listener], [], [])[0]:
            os._exit(0)
        connection, _ = listener.accept()
        children -= {pid for pid in children if os.waitpid(pid, os.WNOHANG)[0]}
        pid = os.fork()
        if pid == 0:
            listener.close()
            return answer(connection)
        children.add(pid)
        connection.close()


def answer(connection):
    """Gives the request in a second process, whose exit code the first one reports."""
    request = json.loads(connection.makefile().readline())
    pid = os.fork()
    if pid:
        status = os.waitpid(pid, 0)[1]
        connection.sendall(b"%d\n" % (os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)))
        os._exit(0)
    connection.close()
    return request


def become(request):
    """Makes this process what Python would be that is started with the request's command line."""
    os.setsid()
    os.chdir(request["folder"])
    for number, path in ((0, os.devnull), (1, request["stdout"]), (2, request["stderr"])):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), number)
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.argv = request["argv"]
    sys.orig_argv = [sys.executable] + sys.argv
    sys.path[:1] = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401 the probe's
    except ImportError as e:
        if e.name != "sitecustomize":
            raise
    sys.path.insert(0, os.path.dirname(sys.argv[0]))
    main = types.ModuleType("__main__")
    main.__file__ = sys.argv[0]
    sys.modules["__main__"] = main
    with open(main.__file__) as file:
        return compile(file.read(), main.__file__, "exec"), main.__dict__


def end():
    """Ends a process as Python does, but for taking its modules apart, which would copy them."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


exec(*become(serve(sys.argv[1])))  # an exception ends the process as it would that of Python
end()

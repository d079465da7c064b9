"""Trains as scripts do that have one habit, and prints what that leaves: losses, tensors, generators, files.

Usage: run.py [MODULE.HABIT [block] [rows=1] [places] [forward:7 backward:3 …]]
Memory runs out at the named calls of linear(), or of its backward pass, counted from 1. With "places", or
such names, the last line is JSON: the number of these calls at the end of each step, and how often memory
ran out. Without arguments it prints all habits, as JSON. A word that begins with # is a digest.
"""
import hashlib
import importlib
import json
import os
import random
import sys

import harness
import memory
import numpy
import torch

MODULES = ("counters", "containers", "tensors", "randomness", "effects", "loops", "data")


def habits():
    for name in MODULES:
        for key, made in vars(importlib.import_module(name)).items():
            if getattr(made, "habit", False) and made.__module__ == name and not (made.newer and torch.__version__.startswith("1.")):
                facts = ("once", "prints", "compiled", "handles", "draws")
                yield dict({fact: getattr(made, fact) for fact in facts}, name="%s.%s" % (name, key))


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) == 1:
        print(json.dumps(list(habits())))
        sys.exit()
    torch.manual_seed(3)
    random.seed(3)
    numpy.random.seed(3)
    words = sys.argv[2:]
    at = [word.split(":") for word in words if ":" in word]
    module, name = sys.argv[1].split(".")
    habit = getattr(importlib.import_module(module), name)
    if not habit.compiled:
        memory.arm([(where, int(number)) for where, number in at], bool(at) or "places" in words)
    harness.options.update(block="block" in words, rows=next((int(word[5:]) for word in words if word.startswith("rows=")), 4))
    left = harness.of(habit)()
    for line in harness.text(left):
        print(line)
    print("random", "#" + hashlib.sha256(repr((torch.get_rng_state().tolist(), random.getstate(), numpy.random.get_state()[1:], numpy.random.get_state()[1].tolist())).encode()).hexdigest())
    print("random numbers", torch.rand(()).item().hex(), random.random().hex(), float(numpy.random.rand()).hex())
    for path in sorted(name for name in os.listdir(".") if os.path.isfile(name) and not name.startswith(".")):
        with open(path, "rb") as file:
            text = file.read()
        print("file", path, text.count(b"\n"), "#" + hashlib.sha256(text).hexdigest())
    sys.stdout.flush()
    if at or "places" in words:
        print(json.dumps({"marks": memory.fail.marks, "hits": memory.fail.hits}))
    else:
        print("calls of linear()", memory.fail.count["forward"])

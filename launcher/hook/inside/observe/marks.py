# The memory held when each block begins and ends, in the first forward only, and the time to launch it:
# until the end of a forward that is followed, the classes of the blocks have another __call__. Blocks
# that a backward pass runs once more come later, and are not counted.
from ..base import process, wrapping
from . import inputs, launches


class Marks:
    """Follows the lists of blocks of a model through one forward."""

    def __init__(self, lists, held, entered, times=None):
        self.held, self.entered, self.times, self.lists, self.undo = held, entered, times, [], []
        owners = {}
        for each in lists:
            told = {"path": each["path"], "bytes": [], "ends": [], "outputs": []}
            self.lists.append(told)
            for module in each["modules"]:
                owners[id(module)] = told, len(each["modules"])
        self.owners = owners
        for kind in {type(m) for each in lists for m in each["modules"]}:
            self.put(kind)

    def put(self, kind):
        plain, owners = kind.__call__, self.owners
        begin, end, number = process.guarded(self.begin), process.guarded(self.end), id

        def __call__(self, *args, **kwargs):
            entry = owners.get(number(self))
            if entry is None:
                return plain(self, *args, **kwargs)
            begin(entry, args, kwargs)
            output = plain(self, *args, **kwargs)
            end(entry, (args, kwargs), output)
            return output

        self.undo.append(wrapping.placed(kind, "__call__", wrapping.like(plain, __call__)))

    def begin(self, entry, args, kwargs):
        since, (told, count) = launches.now(), entry
        if not self.owners or len(told["bytes"]) == count:
            return  # it is called more than once
        if not told["bytes"]:
            self.entered()
            hidden = inputs.largest(args[:1], {})
            hidden = inputs.largest(args, kwargs) if hidden is None else hidden
            told["input_bytes"] = inputs.bytes_of(hidden) if hidden is not None else 0
        told["bytes"].append(self.held())
        if self.times is not None:
            self.times.enters(told["path"], since)

    def end(self, entry, given, output):
        since, (told, count) = launches.now(), entry
        if not self.owners:
            return
        if len(told["ends"]) < len(told["bytes"]):
            told["ends"].append(self.held())
            told["outputs"].append(inputs.new_bytes(output, given))
            if len(told["ends"]) == count:
                told["after_bytes"] = told["ends"][-1]
        if self.times is not None:
            self.times.leaves(since)

    def over(self):
        """Ends the observation, and returns the lists that were called."""
        self.owners.clear()
        while self.undo:
            self.undo.pop()()
        return [told for told in self.lists if told["bytes"]]

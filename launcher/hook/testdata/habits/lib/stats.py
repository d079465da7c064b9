"""A module of a package that counts."""
calls = 0
history = []


def tick():
    global calls
    calls += 1
    history.append(calls)
    return calls


class Meter:
    total = 0

    @classmethod
    def tick(cls):
        cls.total += 1
        return cls.total

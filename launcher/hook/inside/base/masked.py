# Removes secrets from what the hook writes: by the rules of package mask, which is their only place, and by the
# values that gpurun found in the job's command and environment.



class Masked:
    def __init__(self, values=()):
        from . import rules  # type: ignore[attr-defined] # gpurun writes it beside this file

        self.own, self.compiled = rules.RULES, {}
        self.mask, self.values = self.own["mask"], [value for value in values if value]

    def pattern(self, name, at=None):
        """Return a pattern, compiled at its first use: that takes milliseconds, and few texts need it."""
        import re

        if (name, at) not in self.compiled:
            self.compiled[name, at] = re.compile(self.own[name] if at is None else self.own[name][at][0], re.ASCII)
        return self.compiled[name, at]

    def suspect(self, text):
        """Return whether a text in small letters has a word that every name of a secret has."""
        return any(hint in text for hint in self.own["hints"])

    def copy(self, value):
        """Return a report without secrets."""
        if isinstance(value, dict):
            return {key: self.member(key, value[key]) for key in value}
        if isinstance(value, (list, tuple)):
            return [self.copy(one) for one in value]
        return self.text(value) if isinstance(value, str) else value

    def member(self, key, value):
        plain = isinstance(value, (str, int)) and not isinstance(value, bool)
        named = plain and isinstance(key, str) and self.suspect(key.lower()) and self.pattern("name").search(key)
        return self.mask if named and not self.harmless(str(value)) else self.copy(value)

    def text(self, text):
        for value in self.values:
            text = text.replace(value, self.mask)
        small = text.lower()
        if "://" in small:
            text = self.pattern("address").sub(lambda m: m.group(0).split("://")[0] + "://" + self.mask + "@", text)
        for i, (_, hints) in enumerate(self.own["forms"]):
            if any(hint in small for hint in hints):
                text = self.pattern("forms", i).sub(self.form, text)
        if not self.suspect(small):
            return text
        done, parts = 0, []
        for match in self.pattern("text").finditer(text):
            if match.start() < done:
                continue
            begin, end = self.value(text, match)
            if begin == end or self.harmless(text[begin:end]):
                continue
            parts += [text[done:begin], self.mask]
            done = end
        return "".join(parts) + text[done:]

    def form(self, match):
        if not match.re.groups:
            return self.mask
        at = match.start()
        return match.group(0)[:match.start(1) - at] + self.mask + match.group(0)[match.end(1) - at:]

    def harmless(self, value):
        return self.pattern("harmless").search(value.strip()) or self.pattern("variable").search(value.strip())

    def value(self, text, match):
        """Return where the value after a name is; two equal numbers: nowhere."""
        name, separator, at = match.group(1), match.group(2), match.end()
        rest = text[at:]
        quoted = self.pattern("quoted").search(rest)
        if quoted:
            return at + quoted.start(quoted.lastindex), at + quoted.end(quoted.lastindex)
        word, marks = separator.strip(), '"' in separator or "'" in separator
        if not word and not name.startswith("-") or word in ("is", "was") or marks and word.endswith(","):
            return 0, 0
        if rest[:1] in ("", "=", ":", "\r", "\n") or not word and len(rest) > 1 and rest[0] == "-" and rest[1] != " ":
            return 0, 0
        if self.pattern("header").search(name.lstrip("-")):
            scheme = self.pattern("scheme").search(rest)
            at += scheme.end() if scheme else 0
            return at, at + self.line_end(text[at:], text[:match.start()])
        value = self.pattern("line" if ":" in separator and not marks else "word").search(rest)
        found = value.group(0) if value else ""
        end = self.pattern("end").search(found)
        if end:
            found = found[:end.start()]
        return at, at + len(found.rstrip(" \t"))

    def line_end(self, value, before):
        end = min([len(value)] + [value.index(c) for c in "\r\n" if c in value])
        if before[-1:] in ('"', "'") and before[-1:] in value[:end]:
            end = value.index(before[-1])
        return end


def copy(told):
    """Return a report without secrets; without any text where that is not possible, as there is no memory left."""
    import json

    from . import rank

    try:
        if "masked" not in state:
            state["masked"] = Masked(json.loads(rank.start.get("secrets") or "[]"))
        return state["masked"].copy(told)
    except Exception:
        return {key: value for key, value in told.items() if not isinstance(value, (dict, list, str)) or key == "type"}


state: dict = {}

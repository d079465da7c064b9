# Removes secrets from what the hook writes: by the rules of package mask, which is their only place, and by the
# values that gpurun found in the job's command and environment.



LONG, MANY = 512, 4096  # characters of texts, and texts, that are kept: each report has those of the one before


class Masked:
    def __init__(self, values=()):
        from . import rules  # type: ignore[attr-defined] # gpurun writes it beside this file

        self.own, self.compiled = rules.RULES, {}
        self.mask, self.values = self.own["mask"], [value for value in values if value]
        self.texts: dict = {}  # what the rules made of texts
        self.names: dict = {}  # by the key of a report, whether it is the name of a secret

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
        plain = isinstance(value, (str, int)) and not isinstance(value, bool) and isinstance(key, str)
        return self.mask if plain and self.is_name(key) and not self.harmless(str(value)) else self.copy(value)

    def is_name(self, key):
        if key not in self.names:
            self.names[key] = bool(self.suspect(key.lower()) and self.pattern("name").search(key))
        return self.names[key]

    def text(self, text):
        found = self.texts.get(text)
        if found is None:
            found = self.masked(text)
            if len(text) < LONG and len(self.texts) < MANY:
                self.texts[text] = found
        return found

    def masked(self, text):
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

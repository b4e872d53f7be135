"""A suite of others' cases, and what each does here, in a file of lines: a word, the case, and a reason, two spaces apart.

  pass   it passes            fail   it fails, or does not end in time
  skip   it skips itself      slow   it passes, and runs only when asked for         never  it is not run
All but `pass` have a reason. Lines that begin with # are kept.
"""
import os, re

ADDED = "tell why"


class Expected:
    def __init__(self, file):
        self.file, self.lines = file, {}
        for line in open(file) if os.path.exists(file) else []:
            if line.strip() and not line.startswith("#"):
                word, case, *reason = re.split("  +", line.strip(), maxsplit=2)
                self.lines[case] = (word, reason[0] if reason else "")

    def word(self, case):
        return self.lines.get(case, ("", ""))[0]

    def wants(self, case):
        """The word that the case ends with: one that is slow passes."""
        return {"slow": "pass"}.get(self.word(case), self.word(case))

    def compare(self, case, word, why):
        """Notes how a case has ended. Returns what is wrong with that, if anything is."""
        was, reason = self.lines.get(case, ("", ""))
        want, has_reason = self.wants(case), reason and not reason.startswith(ADDED)
        wrong = None
        if word != want:
            wrong = f"{case}: {word}, expected {want or 'nothing: it is not in the file'}: {why}"
        elif word != "pass" and not has_reason:
            wrong = f"{case}: {word} without a reason: {why}"
        if word != want or not has_reason:
            kept = reason if has_reason else f"{ADDED}: {why}"[:200]
            self.lines[case] = (was if word == want else word, "" if word == "pass" else kept)
        return wrong

    def forget_gone(self, cases, suite):
        """Forgets lines of no case. Returns what is wrong with them."""
        gone = [one for one in self.lines if one not in cases]
        for one in gone:
            del self.lines[one]
        return [f"{one}: {suite} has no such case" for one in gone]

    def write(self):
        head = "".join(line for line in open(self.file) if line.startswith("#")) if os.path.exists(self.file) else ""
        with open(self.file, "w") as out:
            out.write(head)
            for case, (word, reason) in sorted(self.lines.items()):
                out.write(f"{word:<5}  {case}{'  ' if reason else ''}{reason}\n")

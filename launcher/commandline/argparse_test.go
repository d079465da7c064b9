package commandline

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/test/testenv"
)

// argparse builds a parser of a grammar's options, and prints for each command
// line the options in their order and the rest, or why it is refused. Names
// are spelled with dashes: that underscores are the same is the launchers' doing.
const argparse = `
import argparse, json, sys
class Refused(Exception): pass
class Parser(argparse.ArgumentParser):
    def error(self, message): raise Refused(message)
found = []
class Note(argparse.Action):
    def __call__(self, parser, namespace, value, option=None):
        found.append([self.dest, value if self.nargs is None else "1"])
for case in json.load(sys.stdin):
    parser = Parser(add_help=False, allow_abbrev=case["abbreviations"])
    for o in case["options"]:
        parser.add_argument(*o["names"], dest=o["name"], action=Note, nargs=0 if o["bare"] else None)
    parser.add_argument("script")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    results = []
    for line in case["lines"]:
        found.clear()
        try:
            a = parser.parse_args(line)
            results.append({"found": list(found), "rest": [a.script] + a.rest})
        except Refused as e:
            results.append({"refused": str(e)})
    print(json.dumps(results))
`

type parserCase struct {
	Options []struct {
		Name  string   `json:"name"`
		Names []string `json:"names"`
		Bare  bool     `json:"bare"`
	} `json:"options"`
	Abbreviations bool       `json:"abbreviations"`
	Lines         [][]string `json:"lines"`
}

// TestReaderAgreesWithArgparse compares the reader with Python's argparse, of which
// most launchers are made, on random command lines of each of their grammars.
func TestReaderAgreesWithArgparse(t *testing.T) {
	python := os.Getenv("GPURUN_TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	if _, err := exec.LookPath(python); err != nil {
		t.Skip("this machine has no python3")
	}
	grammars := []OptionGrammar{torchrun.Grammar, accelerateGrammar, deepspeed.Grammar, composer.Grammar, tune.Grammar, {
		Remainder: true, Abbreviations: true,
		Options: []Option{{Name: "color", Bare: true}, {Name: "colour-map", Aliases: []string{"palette"}, Short: 'p'}, {Name: "note", Short: 'n'}},
	}, {Remainder: true, Options: torchrun.Grammar.Options}}
	const lines = 2000
	random := rand.New(rand.NewPCG(1, 2))
	cases := make([]parserCase, len(grammars))
	for i := range grammars {
		cases[i] = caseOf(&grammars[i])
		for range lines {
			cases[i].Lines = append(cases[i].Lines, randomLine(random, &grammars[i]))
		}
	}
	input, err := json.Marshal(cases)
	testenv.Check(t, err)
	cmd := exec.Command(python, "-c", argparse)
	cmd.Stdin = bytes.NewReader(input)
	out, err := cmd.Output()
	testenv.Check(t, err)
	taken := 0
	answers := json.NewDecoder(bytes.NewReader(out))
	for i := range grammars {
		var want []struct {
			Found   [][2]string
			Rest    []string
			Refused string
		}
		if err := answers.Decode(&want); err != nil || len(want) != lines {
			t.Fatalf("%d answers, %v", len(want), err)
		}
		for n, line := range cases[i].Lines {
			read, err := grammars[i].Read(line)
			if why := want[n].Refused; why != "" {
				// Up to Python 3.11 also an argument of the script's could be ambiguous.
				word, _, _ := strings.Cut(strings.TrimPrefix(why, "ambiguous option: "), " could match")
				ofScript := len(read.Rest) > 0 && slices.Contains(read.Rest[1:], word)
				if err == nil && len(read.Rest) > 0 && !ofScript {
					t.Fatalf("%q is taken, argparse refuses it: %s", line, why)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%q: %v, argparse takes it", line, err)
			}
			taken++
			found := [][2]string{}
			for _, g := range read.Given {
				found = append(found, [2]string{folded(g.Name), g.Value})
			}
			if diff := cmp.Diff(want[n].Found, found); diff != "" {
				t.Fatalf("%q: options (-argparse +gpurun):\n%s", line, diff)
			}
			if diff := cmp.Diff(want[n].Rest, read.Rest); diff != "" {
				t.Fatalf("%q: rest (-argparse +gpurun):\n%s", line, diff)
			}
		}
	}
	if taken < lines {
		t.Errorf("only %d lines were taken", taken)
	}
}

func caseOf(g *OptionGrammar) parserCase {
	c := parserCase{Abbreviations: g.Abbreviations}
	for i := range g.Options {
		o := &g.Options[i]
		var names []string
		for name := range o.names {
			names = append(names, "--"+folded(name))
		}
		if o.Short != 0 {
			names = append(names, "-"+string(o.Short))
		}
		c.Options = append(c.Options, struct {
			Name  string   `json:"name"`
			Names []string `json:"names"`
			Bare  bool     `json:"bare"`
		}{folded(o.Name), names, o.Bare})
	}
	return c
}

// randomLine is a command line of the grammar's own options, cut short or not, and
// of the words that are hard to distinguish from options.
func randomLine(random *rand.Rand, g *OptionGrammar) []string {
	others := []string{"train.py", "train.py", "--", "-5", "-.5", "a b", "-a b", "", "-", "x=y", "--none", "-Z", "auto", "3"}
	var line []string
	for range random.IntN(7) {
		if random.IntN(3) == 0 {
			line = append(line, others[random.IntN(len(others))])
			continue
		}
		o := g.Options[random.IntN(len(g.Options))]
		var names []string
		for name := range o.names {
			names = append(names, "--"+folded(name))
		}
		word := names[random.IntN(len(names))]
		if random.IntN(3) == 0 {
			word = word[:3+random.IntN(len(word)-2)]
		}
		if o.Short != 0 && random.IntN(2) == 0 {
			word = "-" + string(o.Short) + []string{"", "", "3", "=3", "m", "q"}[random.IntN(6)]
		}
		switch random.IntN(4) {
		case 0:
			word += "=5"
		case 1:
			line = append(line, word, others[random.IntN(len(others))])
			continue
		}
		line = append(line, word)
	}
	return slices.Clip(line)
}

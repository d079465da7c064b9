package commandline

import "strings"

// pythonGrammar is the interpreter's own command line (Modules/main.c).
var pythonGrammar = Grammar{Options: append(
	bare("b", "B", "d", "E", "h", "i", "I", "O", "P", "q", "s", "S", "u", "v", "V", "x", "?", "help", "version", "help-env", "help-xoptions", "help-all"),
	Option{Short: 'm', Last: true}, Option{Short: 'c', Last: true}, Option{Short: 'X'}, Option{Short: 'W'}, Option{Name: "check-hash-based-pycs"},
)}

// A Python is what an interpreter is asked to run.
type Python struct {
	// Kind is Module or Script; Program for a line of code, for standard input, and
	// for a question about the interpreter itself.
	Kind Kind
	// Argv is the module or script with its arguments, empty where there is none.
	Argv []string
	// Plain: no other option is given than -u.
	Plain bool
	// Clear: the other options change neither what is run, nor where it is found.
	Clear bool
	// Options are those but -u and -m, as they are written.
	Options []string
}

// ReadPython reads an interpreter's command line, from the interpreter on. The
// error is a *Problem.
func ReadPython(words []string) (Python, error) {
	read, err := pythonGrammar.Read(words[1:])
	if err != nil {
		return Python{}, err
	}
	p := Python{Kind: Script, Argv: read.Rest, Plain: true, Clear: true}
	for _, g := range read.Given {
		switch g.Short {
		case 'u':
		case 'm':
			p.Kind, p.Argv = Module, append([]string{g.Value}, read.Rest...)
		case 'c':
			p.Kind, p.Plain = Program, false
		default:
			p.Plain = false
			p.Clear = p.Clear && (g.Name != "" || strings.IndexByte("bBdOPqsvXW", g.Short) >= 0) && !strings.HasPrefix(g.Name, "help") && g.Name != "version"
			p.Options = append(p.Options, g.String())
			if !g.Bare {
				p.Options = append(p.Options, g.Value)
			}
		}
	}
	if p.Kind == Script && len(p.Argv) > 0 && strings.HasPrefix(p.Argv[0], "-") {
		p.Kind = Program
	}
	return p, nil
}

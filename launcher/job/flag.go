package job

import (
	"regexp"
	"slices"
	"strings"
)

// A flag is one of torchrun's options.
type flag struct {
	name  string // without dashes in front; words joined by dashes
	short byte   // 0 for none
	// truth marks a flag without a value; take gets "1", or what the variable says.
	truth bool
	// noVariable marks a flag that has no PET_ variable.
	noVariable bool
	take       func(c *commandLine, value string) error
}

// variable is the environment variable with the flag's default.
func (f *flag) variable() string {
	return "PET_" + strings.ToUpper(strings.ReplaceAll(f.name, "-", "_"))
}

// A given flag is one with its value, and the words by which the user knows it:
// "--tee" or "PET_TEE".
type given struct {
	*flag
	source string
	value  string
}

// negative is what argparse takes for a number and therefore not for an option.
var negative = regexp.MustCompile(`^-\d+$|^-\d*\.\d+$`)

// parseFlags reads options up to the first word that is none, as Python's
// argparse does with abbreviations allowed. rest is that word and all after it.
// One "--" is dropped: before that word or, without one there, just after it.
func parseFlags(flags []*flag, args []string) (found []given, rest []string, err error) {
	p := flagParser{flags: flags, args: args}
	for p.at < len(p.args) {
		arg := p.args[p.at]
		if arg == "--" {
			return p.found, args[p.at+1:], nil
		}
		done, err := p.option(arg)
		if err != nil {
			return nil, nil, err
		}
		if done {
			break
		}
	}
	rest = args[p.at:]
	if len(rest) > 1 && rest[1] == "--" {
		rest = slices.Delete(slices.Clone(rest), 1, 2)
	}
	return p.found, rest, nil
}

// A flagParser is a command line on its way to options.
type flagParser struct {
	flags []*flag
	args  []string
	at    int
	found []given
}

// option reads the option at p.at with its value, or says that there is none.
func (p *flagParser) option(arg string) (done bool, err error) {
	if !strings.HasPrefix(arg, "-") || arg == "-" {
		return true, nil
	}
	if strings.HasPrefix(arg, "--") {
		name, value, hasValue := strings.Cut(arg[2:], "=")
		f, err := p.long(name)
		if err != nil {
			return false, err
		}
		if f != nil {
			p.at++
			return false, p.take(f, "--"+f.name, value, hasValue)
		}
	} else if f := p.shortFlag(arg[1]); f != nil {
		p.at++
		return false, p.cluster(arg[1:])
	}
	if negative.MatchString(arg) || strings.Contains(arg, " ") {
		return true, nil
	}
	return false, p.unknown(arg)
}

// long finds a flag by its name or by a prefix that fits one flag only.
func (p *flagParser) long(name string) (*flag, error) {
	name = strings.ReplaceAll(name, "_", "-")
	var fits []*flag
	var names []string
	for _, f := range p.flags {
		if f.name == name {
			return f, nil
		}
		if name != "" && strings.HasPrefix(f.name, name) {
			fits, names = append(fits, f), append(names, "--"+f.name)
		}
	}
	switch len(fits) {
	case 0:
		return nil, nil
	case 1:
		return fits[0], nil
	}
	return nil, usage("write it in full", "--%s is ambiguous: it could be %s", name, strings.Join(names, ", "))
}

// shortFlag finds a flag by its letter.
func (p *flagParser) shortFlag(letter byte) *flag {
	for _, f := range p.flags {
		if f.short == letter {
			return f
		}
	}
	return nil
}

// cluster reads what follows one dash: -r3, -r=3, -r 3, -m, -mr3.
func (p *flagParser) cluster(letters string) error {
	for letters != "" {
		f := p.shortFlag(letters[0])
		if f == nil {
			return p.unknown("-" + letters)
		}
		source, rest := "-"+letters[:1], letters[1:]
		if !f.truth {
			value := strings.TrimPrefix(rest, "=")
			return p.take(f, source, value, rest != "")
		}
		if err := p.take(f, source, "", false); err != nil {
			return err
		}
		letters = rest
	}
	return nil
}

// take records a flag, with the next word as its value where it needs one.
func (p *flagParser) take(f *flag, source, value string, hasValue bool) error {
	switch {
	case f.truth && hasValue:
		return usage("", "%s takes no value", source)
	case f.truth:
		value = "1"
	case !hasValue && (p.at == len(p.args) || optionLike(p.args[p.at])):
		return usage("", "%s needs a value", source)
	case !hasValue:
		value = p.args[p.at]
		p.at++
	}
	p.found = append(p.found, given{f, source, value})
	return nil
}

// optionLike reports whether argparse would take a word for an option rather
// than for a value.
func optionLike(arg string) bool {
	return len(arg) > 1 && arg[0] == '-' && !negative.MatchString(arg) && !strings.Contains(arg, " ")
}

// unknown refuses an option, with a guess.
func (p *flagParser) unknown(arg string) error {
	name, _, _ := strings.Cut(arg, "=")
	var names []string
	for _, f := range p.flags {
		names = append(names, "--"+f.name)
	}
	hint := "the script's own arguments go after the script"
	if meant := Nearest(name, names); meant != "" {
		hint = "did you mean " + meant + "?"
	}
	return usage(hint, "unknown flag %s", name)
}

// fromVariables returns the flags that the environment sets and that the command
// line does not. An empty variable counts as none.
func fromVariables(flags []*flag, found []given, env func(string) string) []given {
	var more []given
	for _, f := range flags {
		named := slices.ContainsFunc(found, func(g given) bool { return g.flag == f })
		if f.noVariable || named {
			continue
		}
		if value := env(f.variable()); value != "" {
			more = append(more, given{f, f.variable(), value})
		}
	}
	return more
}

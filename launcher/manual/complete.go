package manual

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/show"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes"
)

// Completions are the words that may replace the last word of a command line.
type Completions struct {
	Words []CompletionWord
	Files bool // paths may also appear there, which the shell completes
}

// A CompletionWord is a word that fits, and its line of help.
type CompletionWord struct{ Word, About string }

// shownRuns is how many runs are offered, the newest first.
const shownRuns = 50

// Complete finds the words that may replace the last of words, which follow "gpurun".
func Complete(app *cli.App, words []string) Completions {
	if len(words) == 0 {
		words = []string{""}
	}
	before, typed := words[:len(words)-1], words[len(words)-1]
	c, rest := command(app, before)
	l := partialLine{app: app, command: c, first: len(rest) == len(before)}
	answer := l.complete(rest, typed)
	answer.Words = slices.DeleteFunc(
		answer.Words, func(c CompletionWord) bool { return !strings.HasPrefix(c.Word, typed) })
	return answer
}

// command returns the verb of a line, run if there is none, and the words after it.
func command(app *cli.App, words []string) (*cli.Command, []string) {
	c := app.Command("run")
	for i, word := range words {
		if named := app.Command(word); named != nil {
			c, words = named, words[i+1:]
			break
		}
		if word != "--json" && word != "--quiet" {
			return c, words
		}
	}
	for _, sub := range c.Subcommands {
		if i := slices.Index(words, sub.Name); i >= 0 {
			return sub, words[i+1:]
		}
	}
	return c, words
}

// A partialLine is a command line up to the word that is completed.
type partialLine struct {
	app     *cli.App
	command *cli.Command
	first   bool // no verb was named: one may follow
	named   int  // arguments that are no flags
	more    bool // flags may follow the first of them: it is a train.toml, or a size
}

// complete walks over the words before the last one, which is typed.
func (l partialLine) complete(before []string, typed string) Completions {
	options := l.options()
	for i := 0; i < len(before); i++ {
		word := before[i]
		o := find(options, word)
		switch {
		case word == "--":
			return Completions{Files: true}
		case strings.HasPrefix(word, "-") && len(word) > 1:
			if o.Value != "" {
				i++
			}
			if i == len(before) {
				return Completions{Files: true}
			}
			continue
		case l.named == 0:
			l.more = strings.HasSuffix(word, ".toml") || l.command.Name == "estimate" && word != "" && word[0] >= '0' &&
				word[0] <= '9'
		}
		if l.named++; readsItself(l.command) && !l.more {
			return Completions{Files: true} // the words after it belong to the job
		}
	}
	if strings.HasPrefix(typed, "-") {
		var all Completions
		for _, o := range options {
			for _, name := range o.Names {
				all.Words = append(all.Words, CompletionWord{name, o.About})
			}
		}
		return all
	}
	return l.arguments()
}

// find returns the option for a word of the line.
func find(all []commandline.HelpEntry, word string) commandline.HelpEntry {
	if strings.Contains(word, "=") {
		return commandline.HelpEntry{}
	}
	for _, o := range all {
		if slices.Contains(o.Names, strings.ReplaceAll(word, "_", "-")) {
			return o
		}
	}
	return commandline.HelpEntry{}
}

// options returns the options of the verb: those in its help, and those that only its usage or its reader
// knows.
func (l partialLine) options() []commandline.HelpEntry {
	all := optionsOf(l.command)
	if readsItself(l.command) {
		all = commandline.Completable(l.command.Name)
	}
	for _, name := range flagLike().FindAllString(l.command.UsageText, -1) {
		if find(all, name).Names == nil {
			all = append(all, commandline.HelpEntry{Names: []string{name}})
		}
	}
	slices.SortStableFunc(all, func(a, b commandline.HelpEntry) int { return strings.Compare(a.Names[0], b.Names[0]) })
	return all
}

var flagLike = lazy.Regexp(`--[a-z][a-z-]+`)

func candidates(words []string) []CompletionWord {
	var all []CompletionWord
	for _, w := range words {
		all = append(all, CompletionWord{Word: w})
	}
	return all
}

// arguments returns the words that the verb accepts besides flags, as its usage defines them.
func (l partialLine) arguments() Completions {
	usage := l.command.UsageText
	has := func(word string) bool { return strings.Contains(usage, word) }
	var a Completions
	switch {
	case l.command.Name == "help":
		a.Words = append(candidates(Topics), l.verbs()...)
	case l.command.Name == "completion":
		if l.named == 0 {
			a.Words = candidates(Shells)
		}
	case l.named > 0 && !has("…"):
	case has("[NAME]") && l.named == 0:
		a.Words = recipeNames()
	case has("[RUN]"):
		a.Words, a.Files = runNames(), true
	default:
		a.Files = !l.more
	}
	for _, sub := range l.command.Subcommands {
		if l.named == 0 {
			a.Words = append(a.Words, CompletionWord{sub.Name, sub.Usage})
		}
	}
	if l.first && l.named == 0 {
		a.Words = append(a.Words, l.verbs()...)
	}
	return a
}

func (l partialLine) verbs() []CompletionWord {
	var all []CompletionWord
	for _, c := range l.app.Commands {
		all = append(all, CompletionWord{c.Name, c.Usage})
	}
	return all
}

func recipeNames() []CompletionWord {
	catalog, err := recipes.Catalog()
	if err != nil {
		return nil // shells do not complete this
	}
	var all []CompletionWord
	for _, r := range catalog {
		all = append(all, CompletionWord{r.Name, r.Title})
	}
	return all
}

// plain matches a name that needs no quotes in a shell.
var plain = lazy.Regexp(`^[\w./+@%-]+$`)

// runNames returns the newest runs below the working directory, by job and name.
func runNames() []CompletionWord {
	all, err := show.ListRuns(".")
	if err != nil {
		return nil
	}
	var found []CompletionWord
	for _, r := range all[:min(len(all), shownRuns)] {
		name := filepath.Base(filepath.Dir(r.Path)) + "/" + filepath.Base(r.Path)
		if plain().MatchString(name) {
			found = append(found, CompletionWord{name, string(r.Outcome)})
		}
	}
	return found
}

// WriteTo writes one word per line, with its help after a tab, and last ":files" if paths may appear, too.
func (a Completions) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	for _, c := range a.Words {
		about := strings.Join(strings.Fields(c.About), " ")
		fmt.Fprintf(&b, "%s\t%s\n", c.Word, about)
	}
	if a.Files {
		b.WriteString(":files\n")
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

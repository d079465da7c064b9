package manual

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/estimate"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/show"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes"
)

// Completions are the words that may replace the last word of a command line.
type Completions struct {
	Words []CompletionWord
	// Paths is the kind of paths that may also appear there, which the shell completes: AnyFile, Folders,
	// TrainFiles, or empty for none.
	Paths string
}

// The kinds of paths that the shell completes.
const (
	AnyFile    = "files"
	Folders    = "folders"
	TrainFiles = "toml"
)

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
	answer.Words = slices.DeleteFunc(answer.Words, func(c CompletionWord) bool { return !strings.HasPrefix(c.Word, typed) })
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
			return Completions{Paths: AnyFile}
		case strings.HasPrefix(word, "-") && len(word) > 1:
			if o.Value != "" && i == len(before)-1 {
				return l.valueOf(o, "", typed)
			}
			if o.Value != "" {
				i++
			}
			continue
		case l.named == 0:
			l.more = strings.HasSuffix(word, ".toml") || l.command.Name == "estimate" && word != "" && word[0] >= '0' && word[0] <= '9'
		}
		if l.named++; readsItself(l.command) && !l.more {
			return Completions{Paths: AnyFile} // the words after it belong to the job
		}
	}
	if name, value, assigned := strings.Cut(typed, "="); assigned && strings.HasPrefix(name, "--") {
		return l.valueOf(find(options, name), name+"=", value)
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

// values returns the allowed values of flags.
func values() map[string][]string {
	all := map[string][]string{
		"mode":           job.Said("recovery", "mode").Words,
		"numerics":       job.Said("recovery", "numerics").Words,
		"never":          job.Said("recovery", "never").Words,
		"nproc-per-node": job.Said("launch", "nproc_per_node").Words,
		"nnodes":         {"1"},
		"if-trained":     {"skip", "run"},
	}
	maps.Copy(all, estimate.Values())
	return all
}

// listed are the flags whose value is a list with commas.
var listed = []string{"never", "offload"}

// valueOf completes an option's value; lead is what precedes it in the same word.
func (l partialLine) valueOf(o commandline.HelpEntry, lead, typed string) Completions {
	for _, name := range o.Names {
		name = strings.TrimLeft(name, "-")
		words := values()[name]
		if i := strings.LastIndex(typed, ","); i >= 0 && slices.Contains(listed, name) {
			lead += typed[:i+1]
		}
		if words != nil {
			return Completions{Words: candidates(lead, words)}
		}
	}
	switch {
	case lead != "" && o.Value != "": // the shell would complete the whole word
		return Completions{}
	case o.Value == "FILE" || o.Value == "PATH":
		return Completions{Paths: AnyFile}
	case o.Value == "DIR":
		return Completions{Paths: Folders}
	}
	return Completions{}
}

func candidates(lead string, words []string) []CompletionWord {
	var all []CompletionWord
	for _, w := range words {
		all = append(all, CompletionWord{Word: lead + w})
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
		a.Words = candidates("", Topics)
		a.Words = append(a.Words, l.verbs()...)
	case l.command.Name == "completion" && l.named == 0:
		a.Words = candidates("", Shells)
	case l.named > 0 && !has("…"):
	case has("[NAME]") && l.named == 0:
		a.Words = recipeNames()
	case has("[RUN]"):
		a.Words, a.Paths = runNames(), Folders
	case l.more:
	case has("FILE|"):
		a.Paths = AnyFile
	case has("DIRECTORY]"):
		a.Paths = Folders
	case has("script.py"), has("COMMAND…"):
		a.Paths = AnyFile
	case has("train.toml"):
		a.Paths = TrainFiles
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

// WriteTo writes one word per line, with its help after a tab, and last the kind of paths.
func (a Completions) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	for _, c := range a.Words {
		about := strings.Join(strings.Fields(c.About), " ")
		fmt.Fprintf(&b, "%s\t%s\n", c.Word, about)
	}
	if a.Paths != "" {
		fmt.Fprintf(&b, ":%s\n", a.Paths)
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

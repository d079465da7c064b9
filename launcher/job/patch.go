package job

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/recipes/script"
)

// Patch returns the change that gives the job's script the arguments that it lacks. It is empty if the script
// has all of them, and has only gaps if none can be added with certainty. The error has a hint.
func (p *Prepared) Patch(ctx context.Context) (script.Patch, error) {
	const hint = "gpurun plan shows which settings gpurun found"
	switch name, _ := p.Recipe(); {
	case p.source == nil:
		return script.Patch{}, errext.Errorf("name the script: gpurun init --patch train.py", "the source of the job's script is not known")
	case name != "" && name != script.RecipeName:
		return script.Patch{}, errext.Errorf(hint, "the recipe %s knows this job's settings: a patch is for scripts with their own training loop", name)
	case p.reader() == nil:
		return script.Patch{}, errext.Errorf("install Python", "no interpreter was found that reads %s", p.shown(p.sourcePath))
	}
	sources := []format.Source{{Path: p.shown(p.sourcePath), Text: p.source}}
	if filepath.IsAbs(sources[0].Path) {
		sources[0].Path = filepath.Base(p.sourcePath)
	}
	for _, module := range p.modules {
		sources = append(sources, format.Source{Path: p.shown(module.Path), Text: module.Text})
	}
	found, err := script.MakePatch(sources, nil, func(program string, input []byte) ([]byte, error) {
		return p.reader().Output(ctx, program, input)
	})
	if err != nil {
		return script.Patch{}, errext.WithHint(err, hint)
	}
	return found, nil
}

// OfferPatch is a text about a patch that would give the job's script arguments that it lacks, with the command that
// prints it; typed are the words of the job. It is empty if there is no such patch.
func (p *Prepared) OfferPatch(ctx context.Context, typed []string) string {
	found, err := p.Patch(ctx)
	if err != nil || len(found.Added) == 0 {
		return "" // init is for jobs of any kind
	}
	var parts []string
	for _, part := range found.Added {
		parts = append(parts, string(part))
	}
	return fmt.Sprintf("A patch gives the script arguments that it lacks (%s); with their defaults it trains as before. This prints it, for git apply:\n\n    %s\n\n",
		strings.Join(parts, ", "), commandline.Quote(append([]string{"gpurun", "init", "--patch"}, typed...)))
}

// WritePatch writes a patch to out, as JSON if asJSON is set, and what it does not contain to notes. The error
// is for a script that cannot be patched.
func WritePatch(out, notes io.Writer, p script.Patch, asJSON bool) error {
	var missing []string
	for _, gap := range p.Missing {
		missing = append(missing, gap.String())
	}
	if len(p.Added) == 0 && len(missing) > 0 && !asJSON {
		return errext.Errorf("change the script there by hand, or name its arguments in train.toml", "nothing can be patched with certainty:\n  %s", strings.Join(missing, "\n  "))
	}
	for _, text := range missing {
		fmt.Fprintf(notes, "gpurun: not patched: %s\n", text)
	}
	for _, text := range p.Notes {
		fmt.Fprintf(notes, "gpurun: note: %s\n", text)
	}
	if asJSON {
		p.Added, p.Missing = append([]script.PatchPart{}, p.Added...), append([]script.Gap{}, p.Missing...)
		return json.NewEncoder(out).Encode(p)
	}
	if len(p.Added) == 0 {
		fmt.Fprintln(notes, "gpurun: the script has these arguments already")
	}
	_, err := io.WriteString(out, p.Diff)
	return err
}

package manual

import (
	"embed"
	"encoding/json"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/job"
)

// Shells are those whose command lines can be completed.
var Shells = []string{"bash", "zsh", "fish"}

//go:embed shells
var scripts embed.FS

// CompletionUsage is how the verb completion is called, CompletionDescription what it does.
const (
	CompletionUsage       = "gpurun completion [--json] bash|zsh|fish\ngpurun completion SHELL -- WORD…"
	CompletionDescription = `The script goes where the shell looks for it; for one session:
   bash   source <(gpurun completion bash)
   zsh    source <(gpurun completion zsh)          (after compinit)
   fish   gpurun completion fish | source
With words behind --, which follow "gpurun" on a line, what may stand in the place of the last one is printed: the
scripts ask for that.`
)

// Completion is what the verb completion does: it writes a shell's script, or answers it.
func Completion(c *cli.Context, out io.Writer) error {
	shell, words := c.Args().First(), c.Args().Tail()
	script, err := scripts.ReadFile("shells/completion." + shell)
	switch {
	case shell == "":
		return errext.Errorf("gpurun completion bash", "completion takes a shell: bash, zsh or fish")
	case err != nil:
		hint := "there are bash, zsh and fish"
		if meant := job.Nearest(shell, Shells); meant != "" {
			hint = "did you mean " + meant + "?"
		}
		return errext.Errorf(hint, "there is no completion for %q", shell)
	case len(words) > 0:
		_, err = Complete(c.App, words).WriteTo(out)
	case c.Bool("json"):
		err = json.NewEncoder(out).Encode(map[string]string{"shell": shell, "script": string(script)})
	default:
		_, err = out.Write(script)
	}
	return err
}

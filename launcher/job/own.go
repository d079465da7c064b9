package job

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
)

// Own are the flags that gpurun has and torchrun has not. They may stand among
// torchrun's flags, before the script or the train.toml.
type Own = commandline.Own

// trainFile is gpurun's own flags, and the path of the train.toml that the words name;
// empty where they are something else. After a train.toml there can be nothing but flags
// of gpurun, so that they may stand there too. Errors have hints.
func (t typedLine) trainFile() (file string, own Own, err error) {
	line := t.line
	if line.Kind != Script || !isTOML(line.Command[0]) {
		return "", line.Own, nil
	}
	if len(line.Command) > 1 {
		if err := after(line, line.Command[0], line.Command[1:]); err != nil {
			return "", line.Own, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(line.Set)) {
		if source := line.Set[name]; !commandline.IsOwnOption(name) && strings.HasPrefix(source, "-") {
			return "", line.Own, errext.Errorf(inFile(name, source)+" in "+line.Command[0], "%s goes with a script, not with a train.toml", source)
		}
	}
	return line.Command[0], line.Own, nil
}

// inFile says how a train.toml has a flag of torchrun's.
func inFile(name, source string) string {
	key := strings.ReplaceAll(name, "-", "_")
	for _, section := range []string{"launch", "job"} {
		if Said(section, key) != nil {
			return "set " + section + "." + key
		}
	}
	return fmt.Sprintf("write job.command = \"torchrun %s …\"", source)
}

func isTOML(name string) bool { return strings.EqualFold(filepath.Ext(name), ".toml") }

// after reads the flags that follow a train.toml.
func after(line *commandline.Launch, file string, words []string) error {
	rest, err := line.More(words)
	var problem *commandline.Problem
	if !errors.As(err, &problem) && len(rest) == 0 {
		if err != nil {
			return withHint(err)
		}
		return nil
	}
	word := words[0]
	if len(rest) > 0 {
		word = rest[0]
	}
	hint := "put the job's arguments into job.args"
	if isTOML(word) {
		hint = "gpurun runs one job: start it once for each"
	}
	return errext.Errorf(hint, "unexpected argument %[2]q after %[1]s", file, word)
}

package job

import (
	"errors"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/environ"
	"github.com/gpurun/gpurun/launcher/errext"
)

// ErrHelp says that the command line asks for help.
var ErrHelp = commandline.ErrHelp

// readTorchrun reads torchrun's command line, with gpurun's own flags among
// torchrun's. legacy is torch.distributed.launch. Errors have hints; ErrHelp asks for help.
func readTorchrun(args []string, env environ.Vars, legacy bool) (*commandline.Launch, error) {
	line, err := commandline.ReadTorchrun(args, env, legacy)
	if err != nil {
		return nil, withHint(err)
	}
	return line, nil
}

// withHint adds what to do about a word of a command line.
func withHint(err error) error {
	var word *commandline.Problem
	if !errors.As(err, &word) {
		return err
	}
	switch word.Fault {
	case commandline.Ambiguous:
		return errext.WithHint(err, "write it in full")
	case commandline.Unknown:
		if meant := Nearest(word.Option, word.Options); meant != "" {
			return errext.WithHint(err, "did you mean "+meant+"?")
		}
		return errext.WithHint(err, "the script's own arguments go after the script")
	}
	return err
}

// launchOf is how the ranks are started by what torchrun's flags say; what
// torchrun has no flag for stays what it is by default.
func launchOf(line *commandline.Launch) Launch {
	l := defaults().Launch
	l.NprocPerNode, l.MasterPort, l.MaxRestarts = Count(line.NprocPerNode), line.MasterPort, line.MaxRestarts
	l.Auto = AutoDevices
	l.LogDir, l.Redirects, l.Tee, l.LocalRanksFilter = line.LogDir, line.Redirects, line.Tee, line.LocalRanksFilter
	l.Role, l.RunID, l.ShutdownTimeout, l.LocalRankArg = line.Role, line.RunID, line.ShutdownTimeout, line.LocalRankArg
	return l
}

// many bounds numbers that have no bound of their own.
const many = 1 << 30

func isPython(word string) bool { return commandline.IsPython(word) }

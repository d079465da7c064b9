package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/mask"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

// errorFileVariable is torchrun's: the parent of a launcher or a rank names a file in it, for the failing
// rank's error.
const errorFileVariable = "TORCHELASTIC_ERROR_FILE"

// TellParent copies the error.json of the rank where the failure began to the file that gpurun's parent named
// in env, gpurun's environment. Like torchrun (dump_error_file in
// torch/distributed/elastic/multiprocessing/errors/error_handler.py), it adds the rank's exit code as
// message.errorCode, negative for a signal. If that rank has no error.json, it writes nothing. Secrets are masked.
func TellParent(env commandline.Environ, dir string, v launcher.Verdict, last strategy.Evidence, m *mask.Masker) error {
	to := env[errorFileVariable]
	if to == "" || v.Outcome == strategy.Trained || len(v.Attempts) == 0 {
		return nil
	}
	tried := v.Attempts[len(v.Attempts)-1]
	if tried.Rank == nil {
		return nil
	}
	folder := ranks.LogFolder(filepath.Join(dir, fmt.Sprintf("attempt-%d", tried.N)), *tried.Rank)
	text, err := system.ReadFile(filepath.Join(folder, "error.json"))
	if err != nil {
		return nil // most scripts write none
	}
	if err := os.WriteFile(to, m.JSON(withErrorCode(text, exitCodeOf(last, *tried.Rank))), system.PrivateMode); err != nil {
		return fmt.Errorf("copy the failing rank's error.json: %w", err)
	}
	return nil
}

// withErrorCode adds the exit code if message is an object, and else returns the text unchanged.
func withErrorCode(text []byte, code int) []byte {
	var outer map[string]json.RawMessage
	var message map[string]json.RawMessage
	if code == 0 || json.Unmarshal(text, &outer) != nil || json.Unmarshal(outer["message"], &message) != nil || message == nil {
		return text
	}
	message["errorCode"] = json.RawMessage(fmt.Sprint(code))
	var err error
	if outer["message"], err = json.Marshal(message); err != nil {
		return text
	}
	whole, err := json.Marshal(outer)
	if err != nil {
		return text
	}
	return whole
}

// exitCodeOf returns a rank's exit code in Python's form, -n for signal n.
func exitCodeOf(ev strategy.Evidence, rank int) int {
	for _, f := range ev.Facts {
		if exit := f.Exit(); exit != nil && f.Rank == rank {
			if exit.Signal != 0 {
				return -exit.Signal
			}
			return exit.Code
		}
	}
	return 0
}

package job

import "github.com/gpurun/gpurun/launcher/commandline"

// The three entries, without other settings: Open takes one of them.

// Load reads a train.toml.
func Load(path string, hook frameworkHook, checks ...Check) (*Job, error) {
	return load(path, base{job: defaults(), hook: hook}, checks...)
}

// FromArgs reads a command line as torchrun takes it.
func FromArgs(args, env []string, dir string) (*Job, error) {
	return fromArgs(args, commandline.ParseEnviron(env), dir, defaults())
}

// TrainFile distinguishes a train.toml from everything else.
func TrainFile(args, env []string) (file string, own Own, err error) {
	t, err := readTyped(args, commandline.ParseEnviron(env), "")
	if err != nil {
		return "", own, err
	}
	return t.trainFile()
}

package recipes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpurun/gpurun/recipes/patch"
)

// throughAccelerate takes a wrapper off that starts its module by accelerate
// launch, and with it the launcher.
func (w Wrapper) throughAccelerate(args []string, own, env map[string]string, read ReadFile) (Inner, error) {
	rest, handed, launcher, err := w.handOver(args)
	if err != nil {
		return Inner{}, err
	}
	more, err := w.handedInFile(rest, read)
	if err != nil {
		return Inner{}, err
	}
	handed = w.packaged(append(more, handed...), read) // the command line is stronger
	module := append([]string{"-m", w.Module}, rest...)
	var inner Inner
	switch launcher {
	case "accelerate":
		inner, err = unwrapAccelerate(append(handed, module...), env, read)
	case "torchrun":
		inner, err = unwrapTorchrun(append(handed, module...))
	default: // python: one rank
		inner = Inner{Kind: InnerModule, Argv: module[1:], Ranks: "1"}
	}
	if err != nil {
		return Inner{}, err
	}
	for name, value := range own {
		if inner.Env == nil {
			inner.Env = map[string]string{}
		}
		inner.Env[name] = value
	}
	return inner, nil
}

// handOver parts the words for the launcher from those of the module.
func (w Wrapper) handOver(args []string) (rest, handed []string, launcher string, err error) {
	launcher = "accelerate"
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return rest, append(handed, args[i+1:]...), launcher, nil
		}
		head, value, equals := strings.Cut(args[i], "=")
		handsOn := w.handsOn(head)
		name, valued, _ := accelerateOptions.find(head)
		valued = valued && handsOn || slices.Contains(w.Takes, head) || w.Configs[head] != ""
		if valued && !equals {
			if i+1 == len(args) {
				return nil, nil, "", fmt.Errorf("no value follows %s", head)
			}
			i++
			value = args[i]
		}
		switch {
		case slices.Contains(w.Refuse, head):
			return nil, nil, "", fmt.Errorf("gpurun cannot take %s over: set launch.ranks = \"self\", or leave it out", head)
		case w.Configs[head] != "":
			handed = append(handed, head+"="+value)
		case handsOn && valued:
			handed = append(handed, "--"+name+"="+value)
		case handsOn:
			handed = append(handed, "--"+name)
		case head == "--launcher":
			launcher = value
		case valued:
		default:
			rest = append(rest, args[i])
		}
	}
	return rest, handed, launcher, nil
}

// handsOn reports whether an option goes to the launcher, with dashes or without.
func (w Wrapper) handsOn(option string) bool {
	name := strings.ReplaceAll(strings.TrimLeft(option, "-"), "-", "_")
	return strings.HasPrefix(option, "--") && slices.Contains(w.Accelerate, "--"+name)
}

// handedInFile are the launcher's options in the file that holds the module's.
func (w Wrapper) handedInFile(args []string, read ReadFile) ([]string, error) {
	if w.HandedIn == "" {
		return nil, nil
	}
	file, named, err := patch.Argv{}.Get(append([]string{w.Module}, args...), w.HandedIn)
	if err != nil || !named {
		return nil, nil // the module complains of it
	}
	text, err := read(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	var table map[string]any
	if err := yaml.Unmarshal(text, &table); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	var words []string
	for _, key := range slices.Sorted(maps.Keys(table)) {
		option, value := "--"+key, table[key]
		switch {
		case slices.Contains(w.Refuse, option):
			return nil, fmt.Errorf("gpurun cannot take %s in %s over: set launch.ranks = \"self\", or leave it out", key, file)
		case value == nil || value == false:
		case w.handsOn(option) && value == true && !accelerateOptions[key]:
			words = append(words, option)
		case w.handsOn(option) || w.Configs[option] != "":
			words = append(words, fmt.Sprintf("%s=%v", option, value))
		}
	}
	return words, nil
}

// packaged names the launcher's configuration by its file: one that the framework
// brings with it, where the name is that of no file.
func (w Wrapper) packaged(handed []string, read ReadFile) []string {
	words := make([]string, len(handed))
	for i, word := range handed {
		option, value, _ := strings.Cut(word, "=")
		if file := w.Configs[option]; file != "" {
			if _, err := read(value); err != nil {
				value = Site + strings.ReplaceAll(file, "{}", value)
			}
			word = "--config_file=" + value
		}
		words[i] = word
	}
	return words
}

// torchrunOptions are those that gpurun has no need of, and the number of ranks.
var torchrunOptions = launchOptions{
	"nproc_per_node": true, "nnodes": true, "standalone": false, "m": false, "module": false, "rdzv_backend": true, "rdzv_endpoint": true, "rdzv_id": true,
	"rdzv_conf": true, "max_restarts": true, "monitor_interval": true, "start_method": true, "role": true, "log_dir": true, "redirects": true, "tee": true,
	"local_ranks_filter": true, "node_rank": true, "master_addr": true, "master_port": true, "local_addr": true, "logs_specs": true, "numa_binding": true,
}

// unwrapTorchrun takes torchrun's options off that a wrapper hands on to it.
func unwrapTorchrun(args []string) (Inner, error) {
	values, rest, err := torchrunOptions.take(args)
	if err != nil {
		return Inner{}, err
	}
	if n := values["nnodes"]; n != "" && n != "1" {
		return Inner{}, fmt.Errorf("--nnodes %s: start gpurun on each node, with launch.nnodes", n)
	}
	return Inner{Kind: InnerModule, Argv: rest, Ranks: values["nproc_per_node"]}, nil
}

package job

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
)

// Missing names, for each remedy, the required part that is not installed: DeepSpeed itself, if the recipe
// shards through it, and the tools and libraries with which DeepSpeed builds its CPU Adam and its
// asynchronous I/O at their first use.
func (p *Prepared) Missing() map[strategy.Remedy]string {
	r := p.Resolved
	if r.command.Packages == nil {
		return nil
	}
	missing := map[strategy.Remedy]string{}
	if r.command.Packages["liger-kernel"] == "" {
		missing[strategy.RemedyFusedLoss] = "the job's interpreter has no liger-kernel"
	}
	if !r.sharesByDeepSpeed() {
		return missing
	}
	lack := func(reason string, remedies ...strategy.Remedy) {
		for _, remedy := range remedies {
			if missing[remedy] == "" {
				missing[remedy] = reason
			}
		}
	}
	if r.lacksDeepSpeed() {
		lack("the job's interpreter has no DeepSpeed", strategy.RemedyShard, strategy.RemedyOffloadOptimizer,
			strategy.RemedyOffloadParam, strategy.RemedyNVMe)
	}
	if !r.finds("c++", "g++", "clang++") {
		lack("DeepSpeed builds its CPU optimizer when it is first used, and there is no C++ compiler",
			strategy.RemedyOffloadOptimizer, strategy.RemedyOffloadParam, strategy.RemedyNVMe)
	}
	if r.Accelerator() == "cuda" && !r.finds("nvcc") {
		lack("DeepSpeed builds its CPU optimizer when it is first used, and there is no nvcc",
			strategy.RemedyOffloadOptimizer, strategy.RemedyOffloadParam, strategy.RemedyNVMe)
	}
	if root := r.Job.Policy.NVMePath; root != "" {
		if reason := ranks.LackOfNVMe(root); reason != "" {
			lack(reason, strategy.RemedyNVMe)
		}
	}
	if !HasLibaio(p.Python(), r.env) {
		lack("DeepSpeed links its access to NVMe with libaio, and libaio.h or libaio.so is not there (libaio-dev)",
			strategy.RemedyNVMe)
	}
	if p.knobs[strategy.OffloadOptimizer].By == strategy.ByHook {
		delete(missing, strategy.RemedyOffloadOptimizer) // it needs no DeepSpeed
	}
	return missing
}

// sharesByDeepSpeed reports whether the recipe shards and offloads through DeepSpeed.
func (r Resolved) sharesByDeepSpeed() bool {
	return slices.Contains(r.recipe.Rules, "deepspeed-config")
}

// lacksDeepSpeed reports whether the recipe does so, and DeepSpeed is known not to be installed.
func (r Resolved) lacksDeepSpeed() bool {
	return r.sharesByDeepSpeed() && r.command.Packages != nil && r.command.Packages["deepspeed"] == ""
}

// finds reports whether one of the programs is in PATH or in CUDA's folders.
func (r Resolved) finds(names ...string) bool {
	home := r.env["CUDA_HOME"]
	for _, name := range names {
		for _, path := range []string{name, filepath.Join(home, "bin", name), filepath.Join("/usr/local/cuda/bin", name)} {
			if _, err := exec.LookPath(path); err == nil {
				return true
			}
		}
	}
	return false
}

// HasLibaio reports whether a program can be linked with libaio. That needs its header and the library's name
// without a version, which are in the distribution's package libaio-dev. They may be in the folders of the
// system, of the interpreter, or in the compiler's variables.
func HasLibaio(python string, env commandline.Environ) bool {
	var include, lib []string
	for _, prefix := range []string{"/usr", "/usr/local", filepath.Dir(filepath.Dir(python)),
		filepath.Dir(filepath.Dir(realPath(python)))} {
		include = append(include, filepath.Join(prefix, "include"))
		lib = append(lib, filepath.Join(prefix, "lib"), filepath.Join(prefix, "lib64"), filepath.Join(prefix, "lib", "*"))
	}
	lib = append(lib, "/lib64", "/lib/*")
	include = append(include, foldersIn(env, "-I", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "CFLAGS")...)
	lib = append(lib, foldersIn(env, "-L", "LIBRARY_PATH", "LDFLAGS")...)
	return anyFile(include, "libaio.h") && anyFile(lib, "libaio.so")
}

// foldersIn lists the folders in variables of an environment, which are separated by colons, or are words
// that begin with flag.
func foldersIn(env commandline.Environ, flag string, variables ...string) []string {
	var folders []string
	for _, name := range variables {
		value := env[name]
		if !strings.HasSuffix(name, "FLAGS") {
			folders = append(folders, strings.Split(value, ":")...)
			continue
		}
		for _, word := range strings.Fields(value) {
			if folder, ok := strings.CutPrefix(word, flag); ok {
				folders = append(folders, folder)
			}
		}
	}
	return folders
}

// anyFile reports whether a file is in one of the folders, which may be globs.
func anyFile(folders []string, name string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		found, err := filepath.Glob(filepath.Join(folder, name))
		return folder != "" && err == nil && len(found) > 0
	})
}

func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

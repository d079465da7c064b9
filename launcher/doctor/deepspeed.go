package doctor

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/python"
)

// deepspeedChecks: what DeepSpeed has built, or can build when it is first used.
var deepspeedChecks = []check{
	{name: "operations", lane: "torch", torch: true, look: operations, bound: 20 * time.Second},
	{name: "compilers", torch: true, look: compilers},
}

//go:embed operations.py
var operationsScript string

// An operation is one of DeepSpeed's, as operations.py tells it.
type operation struct {
	Name       string `json:"name"`
	Built      bool   `json:"built"`
	Compatible bool   `json:"compatible"`
	Why        string `json:"why"` // not, in DeepSpeed's words
}

// noDeepSpeed is why nothing is said of it.
func (p *patient) noDeepSpeed() string {
	if facts, err := p.torch(); err != nil || facts.DeepSpeed == "" {
		return "the interpreter has no DeepSpeed"
	}
	return ""
}

func operations(ctx context.Context, p *patient) Result {
	if lack := p.noDeepSpeed(); lack != "" {
		return skip("%s", lack)
	}
	facts, _ := p.torch()
	var told struct {
		Operations []operation `json:"operations"`
		Error      string      `json:"error"`
	}
	err := python.Trial{Text: operationsScript, Words: [][]string{nil}}.Run(ctx, p.python, &told)
	switch {
	case err != nil:
		return warn("python -m deepspeed.env_report says more", "DeepSpeed %s does not say: %v", facts.DeepSpeed, err)
	case told.Error != "":
		return problem("install DeepSpeed for this PyTorch: pip install --upgrade deepspeed", "DeepSpeed %s cannot be imported: %s", facts.DeepSpeed, python.Shorten(told.Error))
	}
	return p.judgeOperations(facts.DeepSpeed, told.Operations)
}

// judgeOperations says what cannot be used: access to NVMe is a problem where the job
// names a folder for it.
func (p *patient) judgeOperations(version string, operations []operation) Result {
	var usable, lacking []string
	for _, o := range operations {
		switch {
		case o.Built:
			usable = append(usable, o.Name+" (built)")
		case o.Compatible:
			usable = append(usable, o.Name)
		case o.Why != "":
			lacking = append(lacking, o.Name+" ("+python.Shorten(o.Why)+")")
		default:
			lacking = append(lacking, o.Name)
		}
	}
	text := fmt.Sprintf("DeepSpeed %s: %s", version, strings.Join(usable, ", "))
	if len(lacking) == 0 {
		return found("%s", text)
	}
	if len(usable) > 0 {
		text += "; "
	}
	text += "cannot be used: " + strings.Join(lacking, ", ")
	const fix = "python -m deepspeed.env_report says what each lacks: nvcc, g++, libaio"
	if p.nvme != "" && slices.ContainsFunc(operations, func(o operation) bool { return o.Name == "async_io" && !o.Built && !o.Compatible }) {
		return problem(fix, "%s", text)
	}
	return warn(fix, "%s", text)
}

// compilers build DeepSpeed's operations when they are first used.
func compilers(_ context.Context, p *patient) Result {
	if lack := p.noDeepSpeed(); lack != "" {
		return skip("%s", lack)
	}
	facts, _ := p.torch()
	switch {
	case !facts.Compiler:
		return warn("install one: apt-get install g++", "no C++ compiler: DeepSpeed cannot build its CPU optimizer, which offload needs")
	case facts.CUDA == "":
		return found("a C++ compiler; torch is built for the CPU, and needs no nvcc")
	case facts.NVCC == "":
		return warn("install the CUDA toolkit "+facts.CUDA+", or set CUDA_HOME to where it is", "no nvcc: DeepSpeed cannot build its CPU optimizer, which offload needs")
	case facts.NVCCCUDA != "" && major(facts.NVCCCUDA) != major(facts.CUDA):
		return warn("install the CUDA toolkit "+facts.CUDA+", or set CUDA_HOME to where it is", "%s is of CUDA %s, and torch is built for %s: DeepSpeed refuses to build", facts.NVCC, facts.NVCCCUDA, facts.CUDA)
	}
	return found("a C++ compiler, and %s of CUDA %s", facts.NVCC, facts.NVCCCUDA)
}

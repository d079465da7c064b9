package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/strategy"
)

// Orders are for the processes of an attempt, the same for all ranks.
type Orders struct {
	// Script, an absolute path, or Module identifies the rank: the first
	// Python process below gpurun's child that runs it. With neither, every Python
	// process that trains is one.
	Script string `json:"script"`
	Module string `json:"module"`
	// Hooks permits changes of settings; without it a process only reports.
	Hooks bool `json:"hooks"`
	// Turn are the remedies inside the process, and Calls the arguments to change.
	Turn  strategy.Plan   `json:"turn,omitempty"`
	Calls []strategy.Call `json:"calls,omitempty"`
	// InPlace permits to do a step again that ran out of memory; nil: not.
	InPlace *strategy.InPlaceOrders `json:"in_place,omitempty"`
	// Batch is set where a call changes the micro batch or the accumulation: each rank
	// waits before its first optimizer step until Installed.Go is called.
	Batch bool `json:"batch"`
	// Allocator is the variable of PyTorch's allocator that gpurun sets. A process has it from its import of torch on,
	// unless it has set one of its own by then; nil: gpurun sets none.
	Allocator *AllocatorOrder `json:"allocator,omitempty"`
	// Changes are those that the job itself made with its own batch; nil: not known.
	Changes *strategy.Outside `json:"changes,omitempty"`
	// Record selects the allocations on GPUs that are recorded with their stacks, for a
	// snapshot when memory runs out. Where it is empty, there is no snapshot.
	Record Recording `json:"record,omitempty"`
	// Questions is how many seconds the process may be asked after the error that ends it; 0: not at all.
	Questions float64 `json:"questions,omitempty"`
	// Stalls is the signal at which a process writes where it is; 0 for none.
	Stalls int `json:"stalls,omitempty"`
}

// An AllocatorOrder is a variable with its value, and the value that it has without gpurun; nil: none.
type AllocatorOrder struct {
	Name   string  `json:"name"`
	Value  string  `json:"value"`
	Before *string `json:"before,omitempty"`
}

// Recording is how much of the allocations is recorded.
type Recording string

// Recording ends with the third optimizer step, or with the process.
const (
	RecordFirst Recording = "first"
	RecordAll   Recording = "all"
	RecordNone  Recording = ""
)

const (
	ordersFile = "orders.json"
	goFile     = "go"
)

// text is the file of the orders. The hook reads it as Python at its start: strings in plain
// JSON are Python, too.
func (o Orders) text() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(o)
	return b.Bytes(), err
}

// Installed is the hook as installed for one attempt.
type Installed struct {
	dir    string // the attempt's folder
	folder string // the hook's
	names  string
	// secrets are values that no file of the hook may have, as JSON.
	secrets string
}

// Hide keeps secrets out of the hook's files.
func (p *Installed) Hide(secrets []string) {
	p.secrets = ""
	if text, err := json.Marshal(secrets); err == nil && len(secrets) > 0 {
		p.secrets = string(text)
	}
}

// Go lets the ranks of orders with Batch begin with their first optimizer step. It may
// be called again.
func (p *Installed) Go() error {
	err := plant(filepath.Join(p.folder, goFile), nil)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("let the ranks begin: %w", err)
	}
	return nil
}

// Variables gives the variables to set for a rank with a global number, whose
// environment, as KEY=value, is env so far: its PYTHONPATH is kept behind the hook's
// folder.
func (p *Installed) Variables(rank int, env []string) map[string]string {
	path := p.folder
	if others := lookup(env, "PYTHONPATH"); others != "" {
		path += string(os.PathListSeparator) + others
	}
	variables := map[string]string{
		"PYTHONPATH":   path,
		fileVariable:   filepath.Join(rankFolder(p.dir, rank), probeFile),
		ordersVariable: filepath.Join(p.folder, ordersFile),
	}
	if p.names != "" {
		variables[namesVariable] = p.names
	}
	if p.secrets != "" {
		variables[secretsVariable] = p.secrets
	}
	return variables
}

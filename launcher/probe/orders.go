package probe

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

// Orders are what the processes of an attempt are to do, the same for all ranks.
type Orders struct {
	// Script, an absolute path, or Module says which process is the rank: the first
	// Python process below gpurun's child that runs it. With neither, every Python
	// process that trains is one.
	Script string `json:"script"`
	Module string `json:"module"`
	// Hooks says that settings may be changed; without it a process only tells.
	Hooks bool `json:"hooks"`
	// Turn are the rungs to turn from inside, and Calls the arguments to change.
	Turn  strategy.Plan   `json:"turn,omitempty"`
	Calls []strategy.Call `json:"calls,omitempty"`
	// Batch says that a call changes the micro batch or the accumulation: each rank
	// waits before its first optimizer step until Installed.Go is called.
	Batch bool `json:"batch"`
	Ranks int  `json:"ranks"`
	// Record says which allocations on GPUs are recorded with their stacks, for a snapshot
	// when memory runs out. Nothing is recorded, nor written, where it is empty.
	Record Recording `json:"record,omitempty"`
	// Stalls is the signal by which a process may be asked where it is; 0: nobody will ask.
	Stalls int `json:"stalls,omitempty"`
}

// Recording is how much of the allocations is recorded.
type Recording string

// What is recorded: up to the third optimizer step, to the end, or nothing.
const (
	RecordFirst Recording = "first"
	RecordAll   Recording = "all"
	RecordNone  Recording = ""
)

const (
	ordersFile = "orders.json"
	goFile     = "go"
)

// text is the file of the orders. The probe reads it as Python at its start, which
// strings in plain JSON are, too.
func (o Orders) text() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(o)
	return b.Bytes(), err
}

// Installed is the probe as it is installed for one attempt.
type Installed struct {
	dir    string // the attempt's folder
	folder string // the probe's own
	names  string
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
// environment, as KEY=value, is env so far: its PYTHONPATH is kept behind the probe's
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
	return variables
}

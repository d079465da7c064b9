package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

// version is the version of the file format. A file of a later version is not changed: the gpurun that wrote
// it may still need it.
const version = 1

type content struct {
	Version int   `json:"v"`
	Fits    []Fit `json:"fits"` // the newest first
}

// errNewer means a file of a later version of gpurun.
var errNewer = errors.New("a newer gpurun wrote it")

// readFits reads a file of fits; none if there is no file. The error is a *system.Untrusted if the file must not be used.
func readFits(path string) ([]Fit, error) {
	text, err := readOwn(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the job's remembered plans: %w", err)
	}
	fits, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return fits, nil
}

func readOwn(path string) ([]byte, error) {
	f, err := system.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := system.CheckShared(path); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, largestFits+1))
}

// decode accepts only what encode can have written.
func decode(text []byte) ([]Fit, error) {
	if len(text) > largestFits {
		return nil, fmt.Errorf("it has more than %d bytes", largestFits)
	}
	var head struct {
		Version int `json:"v"`
	}
	if json.Unmarshal(text, &head) == nil && head.Version > version {
		return nil, errNewer
	}
	var c content
	err := json.Unmarshal(text, &c)
	switch {
	case err != nil:
	case c.Version != version:
		err = fmt.Errorf("there is no version %d", c.Version)
	default:
		for _, f := range c.Fits {
			err = errors.Join(err, f.check())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	return bounded(c.Fits), nil
}

// check returns an error for impossible values in a fit.
func (f Fit) check() error {
	if err := f.Written.Validate(); err != nil {
		return err
	}
	for _, t := range f.Tried {
		if err := t.Plan.Validate(); err != nil {
			return err
		}
		if t.At.IsZero() || t.Training.Words("") == "" {
			return fmt.Errorf("the plan %s has no time or no class of training", t.Plan)
		}
		for _, a := range t.InPlace {
			if !slices.Contains(strategy.DeviceRemedies, a.Remedy) {
				return fmt.Errorf("the plan %s needed the remedy %q in place, which does not exist", t.Plan, a.Remedy)
			}
		}
	}
	return nil
}

// encode writes the newest fits, as many as fit into a file.
func encode(fits []Fit) ([]byte, error) {
	for fits = bounded(fits); ; fits = fits[:len(fits)-1] {
		text, err := json.Marshal(content{Version: version, Fits: fits})
		if err != nil {
			return nil, fmt.Errorf("encode the remembered plans: %w", err)
		}
		if len(text) < largestFits {
			return append(text, '\n'), nil
		}
		if len(fits) == 1 {
			return nil, fmt.Errorf("the remembered plans of one job have more than %d bytes", largestFits)
		}
	}
}

// bounded drops the oldest entries. It keeps the plan of the job as written, whose failure shows that another
// one is needed.
func bounded(fits []Fit) []Fit {
	fits = fits[:min(len(fits), mostFits)]
	for i, f := range fits {
		kept := f.Tried[:min(len(f.Tried), mostTried)]
		if at := f.plan(f.Written); at >= mostTried {
			kept = append(kept[:mostTried-1:mostTried-1], f.Tried[at])
		}
		for k := range kept {
			kept[k].Measured = kept[k].Measured[:min(len(kept[k].Measured), mostMeasured)]
		}
		fits[i].Tried = kept
	}
	return fits
}

package node

import (
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// mostStored bounds the paths of an attempt whose file systems are looked up.
const mostStored = 4

// storedPaths are the paths in the ranks' errors about storage.
type storedPaths struct {
	mu   sync.Mutex
	full map[string]bool // whether the error says that it is full
}

// note remembers the path of a finding.
func (s *storedPaths) note(f *strategy.Fact) {
	path := strategy.StoragePath(f.Finding())
	if path == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full == nil {
		s.full = map[string]bool{}
	}
	if len(s.full) < mostStored {
		s.full[path] = s.full[path] || f.Finding().Code != cause.Storage
	}
}

// facts are the file systems of the paths.
func (s *storedPaths) facts() (all []strategy.Fact) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path, full := range s.full {
		if found := ranks.ThisMachine().FileSystemOf(path, full); found != nil {
			all = append(all, strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Content: found})
		}
	}
	return all
}

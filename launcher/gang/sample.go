package gang

import (
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// A Sample is what a rank let see of itself at one moment: launcher's, field by field. Bytes
// are of the memory that the job trains in; a zero is not known.
type Sample struct {
	Time      time.Time        `json:"time"` // as CountedAt on the sender's clock
	Rank      int              `json:"rank"` // global
	Device    string           `json:"device,omitempty"`
	Step      int              `json:"step,omitempty"`
	Total     int              `json:"total,omitempty"`
	Loss      *float64         `json:"loss,omitempty"`
	Batches   bool             `json:"batches,omitempty"`
	Counted   int              `json:"counted,omitempty"`
	CountedAt time.Time        `json:"counted_at,omitzero"`
	Data      strategy.Seconds `json:"data,omitempty"`
	Forward   strategy.Seconds `json:"forward,omitempty"`
	Phase     string           `json:"phase,omitempty"`
	Allocated int64            `json:"allocated_bytes,omitempty"`
	Reserved  int64            `json:"reserved_bytes,omitempty"`
	Peak      int64            `json:"peak_bytes,omitempty"`
	Retries   int64            `json:"retries,omitempty"`
	Allowed   int64            `json:"allowed_bytes,omitempty"`
	Used      int64            `json:"used_bytes,omitempty"`
	Capacity  int64            `json:"capacity_bytes,omitempty"`
}

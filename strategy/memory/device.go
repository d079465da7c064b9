package memory

// A DeviceMemory is what a rank has to train in.
type DeviceMemory struct {
	Name string `json:"name,omitempty"`
	// Total is the device's memory in bytes; Allowed is what the allocator is held to,
	// where it is held to something; Others is what other processes hold.
	Total   int64 `json:"total_bytes"`
	Allowed int64 `json:"allowed_bytes,omitempty"`
	Others  int64 `json:"others_bytes,omitempty"`
	// CPU says that the model trains in host memory.
	CPU bool `json:"cpu,omitempty"`
	// Host is the memory of the host that can still be had, all local ranks together;
	// NVMe the space on disk. LocalRanks share both.
	Host       int64 `json:"host_bytes,omitempty"`
	NVMe       int64 `json:"nvme_bytes,omitempty"`
	LocalRanks int   `json:"local_ranks,omitempty"`
}

package nodes

import (
	"context"
	"maps"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// A world is the head's, with the least that any node has: a plan has to fit on each.
type world struct {
	launcher.World
	lead *Lead
}

// World is what there is to work with on all nodes; own is the head's.
func (l *Lead) World(own launcher.World) launcher.World { return world{own, l} }

// Inventory says what there is to work with now.
func (w world) Inventory(ctx context.Context) strategy.Inventory {
	inv := w.World.Inventory(ctx)
	w.lead.own(func() {
		for _, other := range w.lead.inventories {
			inv = least(inv, other)
		}
	})
	return inv
}

// least is what two nodes both have.
func least(a, b strategy.Inventory) strategy.Inventory {
	a.BF16 = a.BF16 && b.BF16
	a.HostAvailable = lesser(a.HostAvailable, b.HostAvailable)
	a.HostTotal = lesser(a.HostTotal, b.HostTotal)
	a.NVMeFree = lesser(a.NVMeFree, b.NVMeFree)
	a.Device = smaller(a.Device, b.Device)
	missing := maps.Clone(b.Missing)
	if missing == nil {
		missing = map[strategy.Rung]string{}
	}
	maps.Copy(missing, a.Missing)
	a.Missing = missing
	return a
}

// smaller is the device that has less room for a rank, with the least that a host and a
// disk have.
func smaller(a, b memory.DeviceMemory) memory.DeviceMemory {
	least := a
	if room(b) < room(a) || a.Total == 0 {
		least = b
	}
	least.Host, least.NVMe = lesser(a.Host, b.Host), lesser(a.NVMe, b.NVMe)
	return least
}

// room is what a device has for one rank.
func room(d memory.DeviceMemory) int64 {
	return lesser(d.Total, d.Allowed) - d.Others
}

// lesser is the smaller of two figures of which 0 means that nobody knows.
func lesser(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

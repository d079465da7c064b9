package nodes

import (
	"context"
	"maps"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// A world is the head's World, with the least of each resource over all nodes: a plan must fit on every node.
type world struct {
	launcher.World
	head *Head
}

// World returns the World of all nodes; own is the head's.
func (h *Head) World(own launcher.World) launcher.World { return world{own, h} }

func (w world) Inventory(ctx context.Context) strategy.Inventory {
	inv := w.World.Inventory(ctx)
	w.head.own(func() {
		for _, p := range w.head.peers {
			if p.inventory != nil {
				inv = least(inv, *p.inventory)
			}
		}
	})
	return inv
}

// least returns the resources that both nodes have.
func least(a, b strategy.Inventory) strategy.Inventory {
	a.BF16 = a.BF16 && b.BF16
	a.HostAvailable = lesser(a.HostAvailable, b.HostAvailable)
	a.HostTotal = lesser(a.HostTotal, b.HostTotal)
	a.NVMeFree = lesser(a.NVMeFree, b.NVMeFree)
	a.Device = smaller(a.Device, b.Device)
	missing := map[strategy.Remedy]string{}
	maps.Copy(missing, b.Missing)
	maps.Copy(missing, a.Missing)
	a.Missing = missing
	return a
}

// smaller returns the device with less memory for a rank, with the smaller of the two host memories and disk
// spaces.
func smaller(a, b memory.DeviceMemory) memory.DeviceMemory {
	forRank := func(d memory.DeviceMemory) int64 { return lesser(d.Total, d.Allowed) - d.Others }
	least := a
	if forRank(b) < forRank(a) || a.Total == 0 {
		least = b
	}
	least.Host, least.NVMe = lesser(a.Host, b.Host), lesser(a.NVMe, b.NVMe)
	return least
}

// lesser returns the smaller of two figures. 0 is unknown.
func lesser(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

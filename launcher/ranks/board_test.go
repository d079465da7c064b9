package ranks

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// board is a driver with GPUs that a test makes, loses and fills. A real driver
// raises an Xid or loses a GPU only when something breaks, and most machines that
// run these tests have none.
type board struct {
	mu      sync.Mutex
	gpus    []Device
	parts   map[int][]Device           // MIG instances by index
	holders map[string][]DeviceProcess // by UUID
	broken  map[string]error           // by UUID
	healths map[string]strategy.Health
	ill     map[string]error // by UUID: what health answers
	looking chan struct{}    // health waits until it is closed; nil: it does not
	asked   int              // calls of device

	alarms     chan func() (alarm, error)
	subscribed []string
	refuse     error // what subscribe answers
	closed     bool
}

func newBoard(gpus ...Device) *board {
	return &board{
		gpus: gpus, parts: map[int][]Device{}, holders: map[string][]DeviceProcess{}, broken: map[string]error{},
		healths: map[string]strategy.Health{}, ill: map[string]error{},
		alarms: make(chan func() (alarm, error), 8),
	}
}

func (b *board) versions() (string, int) { return "580.65.06", 12 }

func (b *board) health(uuid string) (strategy.Health, error) {
	if b.looking != nil {
		<-b.looking
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.healths[uuid], b.ill[uuid]
}

func (b *board) devices() ([]Device, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var usable []Device
	var errs []error
	for _, d := range b.gpus {
		if err := b.broken[d.UUID]; err != nil {
			errs = append(errs, err)
			continue
		}
		usable = append(usable, d)
	}
	return usable, errors.Join(errs...)
}

func (b *board) device(uuid string) (Device, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	if err := b.broken[uuid]; err != nil {
		return Device{}, err
	}
	for _, d := range b.all() {
		if d.UUID == uuid {
			return d, nil
		}
	}
	return Device{}, errors.New("not found")
}

func (b *board) all() []Device {
	all := slices.Clone(b.gpus)
	for _, parts := range b.parts {
		all = append(all, parts...)
	}
	return all
}

func (b *board) instances(index int) ([]Device, error) { return b.parts[index], nil }

func (b *board) processes(uuid string) ([]DeviceProcess, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.holders[uuid]), b.broken[uuid]
}

func (b *board) subscribe(uuids []string) (subscription, error) {
	b.subscribed = uuids
	if b.refuse != nil && len(uuids) < 2 {
		return nil, b.refuse
	}
	return b, b.refuse
}

func (b *board) next(bound time.Duration) (alarm, error) {
	select {
	case a := <-b.alarms:
		return a()
	case <-time.After(bound):
		return alarm{}, errQuiet
	}
}

func (b *board) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

// use sets how much memory a device holds.
func (b *board) use(uuid string, bytes int64, holders ...DeviceProcess) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.gpus {
		if b.gpus[i].UUID == uuid {
			b.gpus[i].Used = bytes
		}
	}
	b.holders[uuid] = holders
}

package ranks

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const gib = 1 << 30

// h100 is one of a few equal GPUs.
func h100(index int) Device {
	return Device{
		Index: index, UUID: uuids[index], Name: "NVIDIA H100 80GB HBM3",
		Total: 80 * gib, Used: 1 << 20, Capability: [2]int{9, 0},
	}
}

var uuids = []string{
	"GPU-5a2b6c1e-0001-4c6f-9d6b-0f2c1de2a001", "GPU-5a2b6c1e-0002-4c6f-9d6b-0f2c1de2a002",
	"GPU-9f2b6c1e-0003-4c6f-9d6b-0f2c1de2a003", "GPU-e02b6c1e-0004-4c6f-9d6b-0f2c1de2a004",
}

func TestBF16(t *testing.T) {
	for capability, want := range map[[2]int]bool{
		{7, 0}: false, {7, 5}: false, {8, 0}: true, {8, 6}: true, {9, 0}: true, {12, 0}: true, {}: false,
	} {
		if got := (Device{Capability: capability}).BF16(); got != want {
			t.Errorf("capability %v: %v", capability, got)
		}
	}
}

func TestDevices(t *testing.T) {
	b := newBoard(h100(0), h100(1))
	n := &NVML{driver: b}
	devices, err := n.Devices()
	if diff := cmp.Diff([]Device{h100(0), h100(1)}, devices); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	b.broken[uuids[0]] = errLost
	devices, err = n.Devices()
	if diff := cmp.Diff([]Device{h100(1)}, devices); diff != "" || !errors.Is(err, errLost) {
		t.Errorf("one lost: %v\n%s", err, diff)
	}
	if err := n.Close(); err != nil || !b.closed {
		t.Errorf("close: %v", err)
	}
}

// A process with both a compute and a graphics context holds memory once.
func TestProcesses(t *testing.T) {
	b := newBoard(h100(0))
	b.use(uuids[0], gib, DeviceProcess{9, 5}, DeviceProcess{3, 7}, DeviceProcess{9, 5})
	got, err := (&NVML{driver: b}).Processes(h100(0))
	if diff := cmp.Diff([]DeviceProcess{{3, 7}, {9, 5}}, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

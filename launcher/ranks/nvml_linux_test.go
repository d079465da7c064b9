//go:build linux && cgo

package ranks

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

// libraryVariable names a library to a child of the test. A process can bind the
// functions of one NVML only, so that each library has a separate process.
const libraryVariable = "GPURUN_GPU_TEST_LIBRARY"

// inChild builds testdata/nvml.c and runs the test again with it. It returns the
// driver in the child, nil in the parent. No machine has such a set of GPUs.
func inChild(t *testing.T, flags ...string) driver {
	t.Helper()
	if path := os.Getenv(libraryVariable); path != "" {
		d, err := openDriver(path)
		testenv.Check(t, err)
		return d
	}
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skipf("no C compiler: %v", err)
	}
	library := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	args := append([]string{"-shared", "-fPIC", "-o", library}, flags...)
	if out, err := exec.Command(compiler, append(args, "testdata/nvml.c")...).CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	self, err := os.Executable()
	testenv.Check(t, err)
	child := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), libraryVariable+"="+library)
	out, err := child.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v\n%s", err, out)
	}
	return nil
}

func TestLibrary(t *testing.T) {
	d := inChild(t)
	if d == nil {
		return
	}
	devices, err := d.devices()
	whole := Device{Index: 0, UUID: "GPU-zero", Name: "NVIDIA H200", Total: 150754820096, Used: 3 << 30, Capability: [2]int{9, 0}}
	cut := Device{Index: 3, UUID: "GPU-three", Name: "NVIDIA H200", Total: 150754820096, Capability: [2]int{9, 0}, MIG: true}
	if diff := cmp.Diff([]Device{whole, cut}, devices); diff != "" {
		t.Errorf("devices: -want +got\n%s", diff)
	}
	if err == nil || err.Error() != "GPU 2: GPU is lost" {
		t.Errorf("devices: %v", err)
	}
	parts, err := d.instances(3)
	part := Device{Index: 3, UUID: "MIG-a", Name: "NVIDIA H200 MIG 1g.18gb", Total: 18 << 30, Used: 1 << 20, Capability: [2]int{9, 0}, MIG: true}
	other := part
	other.UUID, other.Used = "MIG-b", 2<<20
	if diff := cmp.Diff([]Device{part, other}, parts); diff != "" || err != nil {
		t.Errorf("instances: %v\n%s", err, diff)
	}
	if parts, err := d.instances(0); parts != nil || err != nil {
		t.Errorf("instances of a whole GPU: %v, %v", parts, err)
	}
	if got, err := d.device("MIG-b"); got.Used != 2<<20 || err != nil {
		t.Errorf("a device by UUID: %+v, %v", got, err)
	}
	if _, err := d.device("GPU-two"); !errors.Is(err, errLost) {
		t.Errorf("a lost device: %v", err)
	}
	if _, err := d.device("GPU-nine"); err == nil {
		t.Error("a device that is not there is no error")
	}
	processes, err := d.processes("GPU-zero")
	if diff := cmp.Diff([]DeviceProcess{{4711, 2 << 30}, {42, 0}}, processes); diff != "" || err != nil {
		t.Errorf("processes: %v\n%s", err, diff)
	}
	if err := d.close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// No GPU can be made sick at will.
func TestLibraryHealth(t *testing.T) {
	d := inChild(t, "-DSICK")
	if d == nil {
		return
	}
	n := &NVML{driver: d}
	got, err := n.Health(Device{UUID: "GPU-zero"})
	want := strategy.Health{
		Uncorrected: 2, Remapped: 1, Pending: true, Failed: true, Recovery: cause.RecoverByDrainAndReset, Links: 2, Recovered: 6,
		Fabric: "it could not join the NVLink fabric: Some Error", Slowed: "heat", Celsius: 41, Bus: "00000000:4B:00.0",
	}
	if got != want || err != nil {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if _, err := n.Health(Device{UUID: "GPU-two"}); !errors.Is(err, errLost) {
		t.Errorf("a lost device: %v", err)
	}
	if driver, _ := n.Versions(); driver != "520.61.05" {
		t.Errorf("driver %q", driver)
	}
}

func TestLibraryAlarms(t *testing.T) {
	d := inChild(t)
	if d == nil {
		return
	}
	sub, err := d.subscribe([]string{"GPU-zero", "GPU-two", "MIG-a"})
	if err == nil || err.Error() != "GPU GPU-two: GPU is lost" {
		t.Errorf("subscribe: %v", err)
	}
	wants := []struct {
		alarm alarm
		err   error
	}{
		{alarm{uuid: "GPU-zero", kind: xidAlarm, xid: 79}, nil},
		{alarm{}, errQuiet}, // a change of clocks is no alarm
		{alarm{uuid: "MIG-a", kind: eccAlarm}, nil},
		{alarm{uuid: "GPU-three", kind: eccAlarm}, nil}, // another instance of that GPU
		{alarm{uuid: "MIG-a", kind: xidAlarm, xid: 94}, nil},
		{alarm{kind: xidAlarm, xid: 62}, nil},
		{alarm{}, errQuiet},
		{alarm{}, errLost},
	}
	for i, want := range wants {
		got, err := sub.next(time.Millisecond)
		if got != want.alarm || !errors.Is(err, want.err) {
			t.Errorf("alarm %d: %+v, %v, want %+v, %v", i, got, err, want.alarm, want.err)
		}
	}
	if _, err := sub.next(time.Millisecond); err == nil || errors.Is(err, errQuiet) || errors.Is(err, errLost) {
		t.Errorf("an answer that means nothing to us: %v", err)
	}
	if err := sub.close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if sub, err := d.subscribe([]string{"GPU-two"}); sub != nil || err == nil {
		t.Errorf("subscribe to a lost device: %v, %v", sub, err)
	}
}

// A driver from before MIG has fewer functions, and calling one that it lacks
// would end the process.
func TestLibraryOfOldDriver(t *testing.T) {
	d := inChild(t, "-DOLD")
	if d == nil {
		return
	}
	devices, err := d.devices()
	if len(devices) != 2 || devices[0].Used != 3<<30+600<<20 || devices[1].MIG || err == nil {
		t.Errorf("devices: %+v, %v", devices, err)
	}
	if parts, err := d.instances(3); parts != nil || err != nil {
		t.Errorf("instances: %v, %v", parts, err)
	}
	if processes, err := d.processes("GPU-zero"); len(processes) != 2 || err != nil {
		t.Errorf("processes: %v, %v", processes, err)
	}
	if h, err := d.health("GPU-zero"); h != (strategy.Health{}) || err != nil {
		t.Errorf("health: %+v, %v", h, err)
	}
}

func TestLibraryAbsent(t *testing.T) {
	_, err := openDriver(filepath.Join(t.TempDir(), "libnvidia-ml.so.1"))
	if !errors.Is(err, ErrNoNVML) {
		t.Errorf("%v, want ErrAbsent", err)
	}
}

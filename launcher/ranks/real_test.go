//go:build linux && cgo

package ranks

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// openReal connects to the driver of a machine that has one.
func openReal(t *testing.T) (*NVML, []Device) {
	t.Helper()
	n, err := OpenNVML()
	if errors.Is(err, ErrNoNVML) {
		t.Skipf("this machine has no NVIDIA driver: %v", err)
	}
	testenv.Check(t, err)
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	devices, err := n.Devices()
	if err != nil || len(devices) == 0 {
		t.Fatalf("%d devices, %v", len(devices), err)
	}
	return n, devices
}

// tenant builds testdata/tenant.cu, which needs CUDA's compiler.
func tenant(t *testing.T) string {
	t.Helper()
	compiler, err := exec.LookPath("nvcc")
	if err != nil {
		t.Skipf("no CUDA compiler: %v", err)
	}
	program := filepath.Join(t.TempDir(), "tenant")
	if out, err := exec.Command(compiler, "-o", program, "testdata/tenant.cu").CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	return program
}

func TestReal(t *testing.T) {
	n, devices := openReal(t)
	for _, d := range devices {
		t.Logf("%+v", d)
		if !strings.HasPrefix(d.UUID, "GPU-") || d.Total <= 0 || d.Used < 0 || d.Used > d.Total || d.Capability[0] == 0 {
			t.Errorf("%+v", d)
		}
		if _, err := n.Processes(d); err != nil {
			t.Error(err)
		}
	}
	with, err := VisibleDevices(nil, n)
	if err != nil || with.Count == 0 {
		t.Errorf("%+v, %v", with, err)
	}
	without, err := VisibleDevices(nil, nil)
	if err != nil || without.Count != with.Count {
		t.Errorf("with NVML %+v, without %+v, %v", with, without, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	wait := n.Watch(ctx, devices, func(f strategy.Fact) { t.Errorf("%+v", f) })
	cancel()
	wait()
}

// countDevices asks CUDA itself. The driver's library is loaded by hand, since
// PyTorch counts in its own way.
const countDevices = `
import ctypes
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0)
if cuda.cuInit(0) == 0: cuda.cuDeviceGetCount(ctypes.byref(count))
print(count.value)`

// CUDA sees as many devices as Visible says.
func TestRealVisible(t *testing.T) {
	n, devices := openReal(t)
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("no Python to ask CUDA with: %v", err)
	}
	uuid, all := devices[0].UUID, strconv.Itoa(len(devices))
	lists := []string{
		"", "0", "-1", "0,-1", "-1,0", "NoDevFiles", "0,0", "0,00", " 0", "0 ", "+0", "0x", "00", "-0", "x0", "0,,0", ",0", "0,x", all, "0," + all, all + ",0",
		uuid, uuid[:10], uuid[:5], uuid[:4], uuid + "," + uuid, uuid + "," + uuid[:10], uuid + ",0", "0," + uuid,
		uuid + "x", uuid + " x", uuid + "\t", uuid[:10] + " ", uuid[:10] + "x", uuid[:10] + ",x", uuid + " ," + uuid, uuid + ", 0", "GPU-,0", "MIG-", "MIG-" + uuid,
		"-0,0", "- 0", "0 1", "0;1", "0x0", "\t0", "1e0", "0.5", "18446744073709551616", "4294967296", "2147483648",
		all + "," + uuid, "1", "1,0", "0,1", "1,0,1", "1,1", "0,1,2,0", "GPU-,1",
		"GPU-nothing", strings.ToLower(uuid[:4]) + uuid[4:], " " + uuid, uuid + " ", uuid + ",GPU-nothing", "GPU-nothing," + uuid,
	}
	if len(devices) > 1 {
		second := devices[1].UUID
		lists = append(lists, second, second+","+uuid, second+","+uuid+","+second, uuid+","+second[:12], second+",0")
	}
	for _, list := range lists {
		env := append(os.Environ(), "CUDA_VISIBLE_DEVICES="+list)
		ask := exec.CommandContext(t.Context(), python, "-c", countDevices)
		ask.Env = env
		out, err := ask.Output()
		if err != nil {
			t.Skipf("Python cannot ask CUDA: %v", err)
		}
		view, err := VisibleDevices(env, n)
		if got := strconv.Itoa(view.Count); got != strings.TrimSpace(string(out)) || err != nil {
			t.Errorf("%q: %s devices, %v; CUDA sees %s", list, got, err, out)
		}
	}
}

func TestRealSettle(t *testing.T) {
	n, devices := openReal(t)
	hold := exec.CommandContext(t.Context(), tenant(t), "hold", strconv.Itoa(2*gib))
	stdin, err := hold.StdinPipe()
	testenv.Check(t, err)
	stdout, err := hold.StdoutPipe()
	testenv.Check(t, err)
	view, err := VisibleDevices(os.Environ(), n)
	if err != nil || len(view.Devices) == 0 {
		t.Skipf("no GPU is visible: %+v, %v", view, err)
	}
	testenv.Check(t, hold.Start())
	if word, err := bufio.NewReader(stdout).ReadString('\n'); word != "held\n" {
		t.Fatalf("the tenant said %q, %v", word, err)
	}
	facts := n.Settle(t.Context(), view.Devices, 3*settleStep)
	if len(facts) != 1 || strategy.As[*strategy.Tenant](facts[0]) == nil || strategy.As[*strategy.Tenant](facts[0]).Device != "cuda:0" || strategy.As[*strategy.Tenant](facts[0]).Bytes < 2*gib {
		t.Errorf("while it is held: %+v", facts)
	} else if pids := strategy.As[*strategy.Tenant](facts[0]).PIDs; len(pids) > 0 && !slices.Contains(pids, hold.Process.Pid) {
		t.Logf("the driver names %v, in its own numbering; the tenant is %d here", pids, hold.Process.Pid)
	} else {
		t.Logf("%+v", *strategy.As[*strategy.Tenant](facts[0]))
	}
	stdin.Close()
	if err := hold.Wait(); err != nil {
		t.Errorf("the tenant: %v", err)
	}
	if facts := n.Settle(t.Context(), view.Devices, time.Minute); facts != nil {
		t.Errorf("after it has gone: %+v of %+v", facts[0], devices)
	}
}

// A kernel that writes where nothing is mapped makes the driver raise an Xid.
func TestRealXid(t *testing.T) {
	n, _ := openReal(t)
	program := tenant(t)
	view, err := VisibleDevices(os.Environ(), n)
	if err != nil || len(view.Devices) == 0 {
		t.Skipf("no GPU is visible: %+v, %v", view, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	facts := make(chan strategy.Fact, 16)
	wait := n.Watch(ctx, view.Devices, func(f strategy.Fact) { facts <- f })
	if err := exec.CommandContext(ctx, program, "fault").Run(); err != nil {
		t.Errorf("the kernel: %v", err)
	}
	select {
	case f := <-facts:
		if f.DriverEvent() == nil || f.DriverEvent().Device != "cuda:0" || f.DriverEvent().XID == 0 {
			t.Errorf("%+v", f)
		} else {
			t.Log(f.DriverEvent().Text())
		}
	case <-ctx.Done():
		t.Error("no Xid was heard")
	}
	cancel()
	wait()
}

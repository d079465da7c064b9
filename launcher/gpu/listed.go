package gpu

import (
	"io/fs"
	"os"
	"strings"
)

// Listed returns the GPUs that a job with this environment would see by the kernel
// driver's own list in /proc, which takes no time, where that is certain; Visible asks
// NVML for the same, with figures. It is not certain, and the result false, where
//
//   - there is no list: no GPU, or one that is reached in another way (WSL);
//   - CUDA_VISIBLE_DEVICES names devices by UUID, which a list may not show;
//   - a GPU is cut into MIG instances, of which CUDA sees one at most;
//   - a GPU does not say its UUID: nobody has used it since boot, or it is lost.
func Listed(env []string) (View, bool) { return listed(env, os.DirFS("/")) }

// Hidden reports whether an environment hides all GPUs from a job, whatever there is.
func Hidden(env []string) bool {
	list, chosen := lookup(env, "CUDA_VISIBLE_DEVICES")
	return chosen && len(parseVisible(list)) == 0
}

func listed(env []string, root fs.FS) (View, bool) {
	if Hidden(env) {
		return visibleNone, true
	}
	if list, _ := lookup(env, "CUDA_VISIBLE_DEVICES"); byName(parseVisible(list)) {
		return View{}, false
	}
	devices := procInventory(root)
	for _, d := range devices {
		if !strings.HasPrefix(d.UUID, "GPU-") {
			return View{}, false
		}
	}
	instances, err := fs.Glob(root, "proc/driver/nvidia/capabilities/gpu*/mig/gi*")
	if len(devices) == 0 || err != nil || len(instances) > 0 {
		return View{}, false
	}
	view, err := visible(env, nil, root)
	view.Model = devices[0].Name
	return view, err == nil
}

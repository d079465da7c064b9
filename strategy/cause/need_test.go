package cause

import "testing"

// Xids for which NVIDIA's catalogue requires an action need one, and those caused by the job need
// none.
func TestXIDNeeds(t *testing.T) {
	for n, want := range map[int]Need{
		13: "", 31: "", 43: "", 45: "", 137: "", // caused by the job
		63: "", 92: "", 157: "", // no action
		94: Restart, 48: ResetUnlessContained, 171: ResetUnlessContained,
		46: Reset, 62: Reset, 64: Reset, 74: Reset, 95: Reset, 109: Reset, 119: Reset, 120: Reset, 140: Reset, 143: Reset, 154: Reset, 158: Reset,
		79: Reboot, 300: "",
	} {
		if got := (DriverEvent{Kind: XIDEvent, XID: n}).Need(); got != want {
			t.Errorf("Xid %d needs %q, want %q", n, got, want)
		}
	}
	order := []Need{"", Restart, ResetUnlessContained, Check, Reset, Reboot}
	for i, n := range order {
		for j, than := range order {
			if n.Worse(than) != (i > j) {
				t.Errorf("%q is worse than %q: %t", n, than, n.Worse(than))
			}
		}
	}
}

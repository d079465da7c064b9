package strategy
import ("testing";"os";"path/filepath")
func TestZZ(t *testing.T){ fs,_:=filepath.Glob(os.Getenv("ZZ")); for _,f:=range fs { p,_:=os.ReadFile(f); d:=Diagnose(EvidenceFromLog(scan(string(p)),nil)); t.Logf("%-40s %s fatal=%v phase=%s dev=%s late=%v %v | %.90s", filepath.Base(f), d.Cause,d.Fatal,d.Phase,d.Device,d.Late,d.Symptoms,d.Error)}}

package manual

import "runtime/debug"

// Version is the module's version, a release's tag for example, or the commit that the
// binary was built from.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	if commit := Commit(); commit != "" {
		return "devel-" + commit[:min(12, len(commit))]
	}
	return "devel"
}

// Commit is what the binary was built from; empty where it does not say.
func Commit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return ""
}

package commandline

// Verbs are gpurun's, those that are still to come among them: as the first word none
// is ever a program, unless it stands behind a "--".
var Verbs = []string{
	"run", "plan", "diagnose", "explain", "recipes", "init", "estimate", "doctor", "runs", "resume", "status", "logs", "report", "verdict", "clean", "secret", "completion", "version", "help",
}

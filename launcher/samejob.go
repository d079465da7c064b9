package launcher

// SameJob reports whether a run that began with a digest is of the job whose digest,
// in a version, is what digest gives.
func SameJob(began string, digest func(version int) (string, bool)) bool {
	version, theirs := splitDigest(began)
	ours, known := digest(version)
	_, ours = splitDigest(ours)
	return known && ours == theirs
}

// SameFiles reports whether the configuration files that a run began with are still what
// they were. One that has come since is no input of it.
func SameFiles(began, now map[string]string) bool {
	for name, sum := range began {
		if now[name] != sum {
			return false
		}
	}
	return true
}

package launcher

// SameJob reports whether a run that began with a digest is of the job whose digest,
// in a version, is what digest gives.
func SameJob(began string, digest func(version int) (string, bool)) bool {
	version, theirs := splitDigest(began)
	ours, known := digest(version)
	_, ours = splitDigest(ours)
	return known && ours == theirs
}

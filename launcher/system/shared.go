package system

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// A pod of Kubernetes may be replaced by one of another user, which resumes its run. So what gpurun creates in a
// folder that a volume's group shares is for that group, too. This needs a pod: elsewhere a setgid folder may be
// that of a project, whose members do not share their runs.

// forGroup is the access of the group to files, and with folderBits to folders.
const (
	forGroup   fs.FileMode = 0o060
	folderBits             = 0o010 | fs.ModeSetgid
)

// sharedByGroup reports whether a folder is in a volume that pods of a group share: it has the mode of an fsGroup.
func sharedByGroup(dir string) bool {
	if os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return false
	}
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() || info.Mode()&fs.ModeSetgid == 0 || info.Mode()&fs.ModeSticky != 0 || info.Mode()&0o070 != 0o070 {
		return false
	}
	return memberOf(info) && distrust(info, false) == ""
}

func memberOf(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && inGroup(stat.Gid)
}

// ForGroup reports whether a file or folder is for the group of a volume, and closed to others.
func ForGroup(path string, info fs.FileInfo) bool {
	return info.Mode()&fs.ModeSymlink == 0 && info.Mode()&0o002 == 0 && memberOf(info) && sharedByGroup(filepath.Dir(path))
}

// CheckShared is like CheckOwn, but also accepts what is for the group of a volume.
func CheckShared(path string) error {
	err := CheckOwn(path)
	if err == nil {
		return nil
	}
	if info, failed := os.Lstat(path); failed == nil && ForGroup(path, info) {
		return nil
	}
	return err
}

// shareFolder gives the group of a volume access to a new folder.
func shareFolder(dir string) error {
	if !sharedByGroup(filepath.Dir(dir)) {
		return nil
	}
	return os.Chmod(dir, dirMode|forGroup|folderBits)
}

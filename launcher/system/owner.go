package system

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Untrusted is the reason why another user could change files that gpurun writes into a folder and relies on.
type Untrusted struct{ Why string }

func (e *Untrusted) Error() string { return e.Why }

// CheckOwner refuses a folder of a user other than the caller or root, and a folder that everybody may write
// to, unless it has a sticky bit like /tmp.
//
// It accepts folders shared by a group: those that the owner opened to a group of the caller, and Kubernetes
// volumes with an fsGroup, which belong to root and have the setgid bit. It also accepts file systems that
// show another owner or mode than they were given, as NFS does for root and SMB for all users. The error is
// an *os.PathError with an *Untrusted or the system's error.
func CheckOwner(dir string) error {
	link, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	for _, of := range []os.FileInfo{link, info} {
		if why := distrust(of, of == link); why != "" && !asShown(dir, of) {
			return &os.PathError{Op: "use", Path: dir, Err: &Untrusted{why}}
		}
	}
	return nil
}

// distrust returns why a folder, or a link to one, is not trusted; empty if it is.
func distrust(info os.FileInfo, isLink bool) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || isLink && info.Mode()&os.ModeSymlink == 0 {
		return ""
	}
	const group, others = 0o020, 0o002
	mode, shared := info.Mode(), inGroup(stat.Gid)
	if foreign(stat.Uid) && (isLink || mode&group == 0 || !shared) {
		return fmt.Sprintf("it belongs to another user (uid %d)", stat.Uid)
	}
	volume := stat.Uid == 0 && mode&os.ModeSetgid != 0 && shared
	if !isLink && mode&others != 0 && mode&os.ModeSticky == 0 && !volume {
		return fmt.Sprintf("every user can write to it (mode %#o)", mode.Perm())
	}
	return ""
}

func foreign(uid uint32) bool { return uid != 0 && int64(uid) != int64(os.Geteuid()) }

// inGroup reports whether the caller is a member of a group other than root's.
func inGroup(gid uint32) bool {
	if gid == 0 {
		return false
	}
	groups, err := os.Getgroups()
	return int64(gid) == int64(os.Getegid()) || err == nil && slices.Contains(groups, int(gid))
}

// asShown reports whether the file system shows a new private file of the caller in a folder with the same
// owner and mode as the folder, or the link to it.
func asShown(dir string, shown os.FileInfo) bool {
	stat, ok := shown.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	own, ok := shownIn(dir)
	const others = 0o002
	open := shown.IsDir() && stat.Mode&others != 0 && stat.Mode&unix.S_ISVTX == 0
	return ok && own.Uid == stat.Uid && (!open || own.Mode&others != 0)
}

// shownIn returns how the file system shows a new private file of the caller in a folder.
func shownIn(dir string) (own unix.Stat_t, ok bool) {
	f, err := os.CreateTemp(dir, ".gpurun-*")
	if err != nil {
		return own, false
	}
	defer os.Remove(f.Name())
	defer f.Close()
	return own, unix.Fstat(int(f.Fd()), &own) == nil
}

// CheckOwn refuses a file or folder that gpurun has not made as a private one for the caller, and a link:
// gpurun does not rely on files of other users. It accepts an owner or mode that the file system shows for
// all of the caller's files. The error is an *os.PathError with an *Untrusted or the system's error.
func CheckOwn(path string) error {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return &os.PathError{Op: "use", Path: path, Err: err}
	}
	const groupAndOthers = 0o022
	why := ""
	switch {
	case stat.Mode&unix.S_IFMT == unix.S_IFLNK:
		why = "it is a link"
	case int64(stat.Uid) != int64(os.Geteuid()):
		why = fmt.Sprintf("it belongs to another user (uid %d)", stat.Uid)
	case stat.Mode&groupAndOthers != 0:
		why = fmt.Sprintf("others can write to it (mode %#o)", stat.Mode&0o777)
	default:
		return nil
	}
	own, ok := shownIn(filepath.Dir(path))
	if ok && stat.Mode&unix.S_IFMT != unix.S_IFLNK && own.Uid == stat.Uid && stat.Mode&groupAndOthers&^own.Mode == 0 {
		return nil
	}
	return &os.PathError{Op: "use", Path: path, Err: &Untrusted{why}}
}

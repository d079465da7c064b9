package private

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Untrusted says why somebody else could change what gpurun writes into a folder,
// and then acts upon.
type Untrusted struct{ Why string }

func (e *Untrusted) Error() string { return e.Why }

// CheckOwner refuses a folder of another user than the caller or root, and one
// that everybody may write to (a sticky bit makes it as safe as /tmp is). Groups
// that share a folder are none of this: a folder that its owner opened to a group
// of the caller, and volumes of Kubernetes with an fsGroup, which root owns with
// the setgid bit. Nor are file systems that show another owner or mode than they
// were given, as NFS does for root and SMB for everybody. The error is an
// *os.PathError, of an *Untrusted or the system's.
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

// distrust says why a folder, or a link to one, is not to be trusted; empty if it is.
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
		return fmt.Sprintf("it can be written to by everybody (mode %#o)", mode.Perm())
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

// asShown reports whether the file system shows a file that was made in a folder a
// moment ago, by the caller and for nobody else, just as it shows the folder, or
// the link to it.
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

// shownIn is how the file system shows a file that is made in a folder for the caller alone.
func shownIn(dir string) (own unix.Stat_t, ok bool) {
	f, err := os.CreateTemp(dir, ".gpurun-*")
	if err != nil {
		return own, false
	}
	defer os.Remove(f.Name())
	defer f.Close()
	return own, unix.Fstat(int(f.Fd()), &own) == nil
}

// CheckOwn refuses a file or folder that gpurun has not made for the caller alone, and a link
// to one: what others have put there is not acted upon. What the file system shows as another
// owner's or mode wherever the caller makes a file is none of this. The error is an
// *os.PathError, of an *Untrusted or the system's.
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

package system

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
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
	if err != nil || !info.IsDir() || info.Mode()&fs.ModeSetgid == 0 || info.Mode()&fs.ModeSticky != 0 ||
		info.Mode()&0o070 != 0o070 {
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

var userNames sync.Map // of a uint32 to its name

// UserName returns a user's name, or the number if the system has no name for it. It may wait for a directory
// service.
func UserName(uid uint32) string {
	if name, known := userNames.Load(uid); known {
		return name.(string)
	}
	name := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(name); err == nil && u.Username != "" {
		name = u.Username
	}
	userNames.Store(uid, name)
	return name
}

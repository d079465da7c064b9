package job

import (
	"cmp"
	"errors"
	"fmt"
	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/launcher/system"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// A SharedStore is a folder in which the users of a site share their fits. Below it is a folder for each version of
// the format, there one for each job, by the digest of its code, and there a file of each user: u1000.json. No file
// has two writers with different user ids, and each is replaced as a whole, so that it needs no locks.
type SharedStore struct {
	Dir   string // an absolute path; empty: nothing is shared
	Group bool   // plans of members of the folder's group are trusted

	hang func() // waits as a slow disk does, in tests; nil: nothing
}

// FitsPatience is how long a reader or a writer waits for a slow folder.
const FitsPatience = 2 * time.Second

// Bounds of what is read and kept.
const (
	mostUsers     = 64        // files of one job, the newest
	largestShared = 256 << 10 // bytes of one file
	sharedFor     = 90 * 24 * time.Hour
	prunedAtOnce  = 32 // folders
)

// FitsOfUsers are the fits of one job that users share.
type FitsOfUsers struct {
	Own     []Fit // the caller's
	Trusted []Fit // of users whose plans a job may start with
	Others  []Fit // of other users: proposals only
}

// sharedName matches the name of a user's file.
var sharedName = lazy.Regexp(`^u([0-9]{1,10})\.json$`)

// folder is the folder of a job.
func (s SharedStore) folder(code string) string {
	return filepath.Join(s.Dir, "v"+strconv.Itoa(version), code)
}

// Load reads what users share about the job with a digest of its code. It skips files that are damaged, of a newer
// version, or not what they should be: nothing that another user writes is an error. A folder that does not answer
// in time is one.
func (s SharedStore) Load(code string) (FitsOfUsers, error) {
	if s.Dir == "" {
		return FitsOfUsers{}, nil
	}
	var all FitsOfUsers
	err, over := system.Within(FitsPatience, func() error {
		read, err := s.load(code)
		all = read
		return err
	})
	if !over {
		return FitsOfUsers{}, fmt.Errorf("read the shared plans: %s did not answer within %s", s.Dir, FitsPatience)
	}
	return all, err
}

func (s SharedStore) load(code string) (all FitsOfUsers, err error) {
	if s.hang != nil {
		s.hang()
	}
	root, err := os.Stat(s.Dir)
	if err != nil {
		return all, fmt.Errorf("read the shared plans: %w", err)
	}
	folder := s.folder(code)
	entries, err := system.ListFolder(folder, 2*mostUsers)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	} else if err != nil {
		return all, fmt.Errorf("read the shared plans: %w", err)
	}
	var files []sharedFile
	for _, e := range entries {
		if f, ok := s.read(folder, e.Name(), root); ok {
			files = append(files, f)
		}
	}
	slices.SortStableFunc(files, func(a, b sharedFile) int { return b.written.Compare(a.written) })
	for _, f := range files[:min(len(files), mostUsers)] {
		switch f.from {
		case byCaller:
			all.Own = append(all.Own, f.fits...)
		case byTrusted:
			all.Trusted = append(all.Trusted, f.fits...)
		default:
			all.Others = append(all.Others, f.fits...)
		}
	}
	return all, nil
}

// author is who wrote a shared file.
type author int

const (
	byOther author = iota
	byTrusted
	byCaller
)

type sharedFile struct {
	from    author
	written time.Time
	fits    []Fit
}

// read reads one user's file; false if it is none.
func (s SharedStore) read(folder, name string, root fs.FileInfo) (f sharedFile, ok bool) {
	m := sharedName().FindStringSubmatch(name)
	if m == nil {
		return f, false
	}
	file, err := system.OpenFile(filepath.Join(folder, name), os.O_RDONLY)
	if err != nil {
		return f, false
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() > largestShared {
		return f, false
	}
	f.written = info.ModTime()
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || strconv.FormatUint(uint64(owner.Uid), 10) != m[1] {
		return f, false // a name that another user has taken
	}
	shared, _ := root.Sys().(*syscall.Stat_t)
	switch closed := info.Mode().Perm()&0o002 == 0; {
	case int64(owner.Uid) == int64(os.Geteuid()) && info.Mode().Perm()&0o022 == 0:
		f.from = byCaller
	case s.Group && closed && root.Mode().Perm()&0o002 == 0 && shared != nil && owner.Gid == shared.Gid:
		f.from = byTrusted
	}
	text, err := io.ReadAll(io.LimitReader(file, largestShared+1))
	if err != nil || len(text) > largestShared {
		return f, false
	}
	f.fits, err = decode(text)
	foreign := func(one Fit) bool { return one.Code != filepath.Base(folder) }
	return f, err == nil && !strange(text) && !slices.ContainsFunc(f.fits, foreign)
}

// strange reports whether a file has a text that is no name of a module, a device or a setting: another user's words
// never reach people.
func strange(text []byte) bool {
	began := -1 // of a text, whose quotes are never escaped
	for i, c := range text {
		switch {
		case c == '\\' || c < ' ' && c != '\n' || c > '~', began >= 0 && i-began > longestName:
			return true
		case c == '"' && began < 0:
			began = i
		case c == '"':
			began = -1
		}
	}
	return false
}

// longestName bounds the names in a shared file, in bytes.
const longestName = 200

// Save replaces the caller's file for a job, and removes some of the caller's old files. fits are those of the job
// with all their conditions; of others, none are kept.
func (s SharedStore) Save(code string, fits []Fit) error {
	if s.hang != nil {
		s.hang()
	}
	root, err := os.Stat(s.Dir)
	if err != nil {
		return err
	}
	mine := slices.DeleteFunc(slices.Clone(fits), func(f Fit) bool { return f.Code != code })
	if len(mine) == 0 {
		return nil
	}
	text, err := encode(mine)
	for ; err == nil && len(text) > largestShared && len(mine) > 1; text, err = encode(mine) {
		mine = mine[:len(mine)-1]
	}
	if err != nil || len(text) > largestShared || strange(text) {
		return err // too large, or with names that no reader accepts: it is not shared
	}
	folder := s.folder(code)
	for _, dir := range []string{filepath.Dir(folder), folder} {
		if err := makeShared(dir, root.Mode()); err != nil {
			return err
		}
	}
	path := filepath.Join(folder, s.own())
	if err := system.WriteCopy(path, text, system.PrivateMode|root.Mode().Perm()&0o044); err != nil {
		return err
	}
	s.prune(code)
	return nil
}

// own is the name of the caller's files.
func (s SharedStore) own() string { return fmt.Sprintf("u%d.json", os.Geteuid()) }

// makeShared makes a folder with the mode of the shared one. Another user may do so at the same time: none sees a
// folder that it cannot use yet.
func makeShared(dir string, mode fs.FileMode) error {
	if _, err := os.Lstat(dir); err == nil {
		return nil
	}
	made, err := os.MkdirTemp(filepath.Dir(dir), ".gpurun-")
	if err != nil {
		return err
	}
	err = os.Chmod(made, mode&(fs.ModePerm|fs.ModeSetgid|fs.ModeSticky)) // whatever the umask is
	if err == nil {
		err = os.Rename(made, dir)
	}
	if err != nil {
		_ = os.Remove(made)
		if _, known := os.Lstat(dir); known == nil {
			return nil // another user was first
		}
	}
	return err
}

// prune removes the caller's old files of other jobs, in a few folders after this one's: in time, of all.
func (s SharedStore) prune(code string) {
	above := filepath.Dir(s.folder(code))
	entries, err := os.ReadDir(above)
	if err != nil {
		return
	}
	at, _ := slices.BinarySearchFunc(
		entries, code, func(e fs.DirEntry, code string) int { return cmp.Compare(e.Name(), code) })
	for i := range min(len(entries), prunedAtOnce) {
		folder := filepath.Join(above, entries[(at+i)%len(entries)].Name())
		path := filepath.Join(folder, s.own())
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > sharedFor {
			_ = os.Remove(path)
			_ = os.Remove(folder) // if it is empty
		}
		system.SweepFolder(folder, time.Hour)
	}
}

// Share shares a job's fits after an attempt: those that the caller remembers, or, where nothing can be remembered,
// those that the caller has shared before, and the attempt. A folder that does not answer in time is an error.
func (s SharedStore) Share(code string, remembered []Fit, latest Observation) error {
	if s.Dir == "" {
		return nil
	}
	err, over := system.Within(FitsPatience, func() error {
		if remembered != nil {
			return s.Save(code, remembered)
		}
		all, err := s.load(code)
		if err != nil {
			return err
		}
		return s.Save(code, LearnFits(all.Own, latest))
	})
	if !over {
		return fmt.Errorf("%s did not answer within %s", s.Dir, FitsPatience)
	}
	return err
}

// Beyond returns the fits of the caller and of trusted users under conditions that the caller's own memory does not
// have, one for each: a fit with a plan that fitted comes before others, then the newest.
func (a FitsOfUsers) Beyond(own []Fit) (beyond []Fit) {
	all := slices.Concat(a.Own, a.Trusted)
	rescued := slices.DeleteFunc(slices.Clone(all), func(f Fit) bool { return !f.rescued() })
	for _, f := range slices.Concat(rescued, all) {
		known := func(o Fit) bool { return o.Conditions == f.Conditions }
		if !slices.ContainsFunc(own, known) && !slices.ContainsFunc(beyond, known) {
			beyond = append(beyond, f)
		}
	}
	return beyond
}

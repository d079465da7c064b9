package journal

import "golang.org/x/sys/unix"

// rooms are the bytes that the journal keeps free for itself on the disk, as many as
// can be had: how the last attempt ended, and what was decided, can then be written
// down also when ranks have filled the disk.
var rooms = []int64{256 << 10, 64 << 10, 16 << 10}

// reserve keeps room after the last event. Where the file system cannot, nothing is
// lost but that.
func (j *Journal) reserve() {
	if j.reserved >= j.size+rooms[0]/2 {
		return
	}
	for _, n := range rooms {
		if unix.Fallocate(int(j.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, j.size, n) == nil {
			j.reserved = j.size + n
			return
		}
	}
}

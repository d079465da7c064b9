package system

import (
	"os/user"
	"strconv"
	"sync"
)

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

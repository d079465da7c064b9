package node

import (
	"fmt"
	"strconv"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// farthest is how far ahead a deadline may be, in years. A later one is in another unit, such as milliseconds
// since 1970.
const farthest = 1

// ReadDeadline parses the time by which a run must be over: a time in RFC 3339, seconds since 1970, the next
// time that a clock shows "07:30", or a duration from now, such as "4h" or "90m". Empty means no deadline. It
// is an error if the run would have less time than the notice's grace and the last minute, since it would be
// stopped before it begins. The error has an exit code. The time has now's monotonic clock: it stays as far away if
// the wall clock is set.
func (o NoticeOptions) ReadDeadline(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		if seconds, bad := strconv.ParseInt(text, 10, 64); bad == nil && seconds > 1e9 {
			at, err = time.Unix(seconds, 0), nil
		} else if d, bad := time.ParseDuration(text); bad == nil {
			at, err = now.Add(d), nil
			if o.Mode != NoticeGoOn && d > 0 && d <= o.Grace+reserve {
				err = errext.Errorf(fmt.Sprintf("write more than %s: launch.notice_grace (%s) and a minute for the end are taken off", o.Grace+reserve, o.Grace), "--deadline: %s is too short to start anything", text)
				return time.Time{}, errext.WithCode(err, strategy.CodeUsage)
			}
		} else if clock, bad := time.Parse("15:04", text); bad == nil {
			at, err = nextClock(clock, now), nil
		}
	}
	switch {
	case err != nil:
		err = errext.Errorf("write a duration such as 4h, a time such as 07:30 or 2026-01-31T18:00:00+01:00, or seconds since 1970", "--deadline: %q is not a time", text)
	case !at.After(now):
		err = errext.Errorf("give a time to come", "--deadline: %s is over", text)
	case at.After(now.AddDate(farthest, 0, 0)):
		err = errext.Errorf("give a time within a year; a number is seconds since 1970", "--deadline: %s is in the year %d", text, at.UTC().Year())
	}
	return now.Add(at.Sub(now)), errext.WithCode(err, strategy.CodeUsage)
}

// nextClock returns the next time at which a clock here shows the given time of day.
func nextClock(clock, now time.Time) time.Time {
	at := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), 0, 0, now.Location())
	if !at.After(now) {
		at = time.Date(now.Year(), now.Month(), now.Day()+1, clock.Hour(), clock.Minute(), 0, 0, now.Location())
	}
	return at
}

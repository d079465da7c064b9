package launcher

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// The end of a run is written before the ranks' grace is over, because the sender of the signal may kill
// gpurun meanwhile.
func TestTheVerdictDoesNotWaitForTheRanks(t *testing.T) {
	for _, test := range []struct {
		cause   *Signal
		outcome strategy.Outcome
		code    int
		says    string
	}{
		{&Signal{Number: syscall.SIGHUP}, strategy.Stopped, 129, "stopped by SIGHUP"},
		{&Signal{Number: syscall.SIGTERM}, strategy.Stopped, 143, "stopped by SIGTERM"},
		{&Signal{Number: syscall.SIGTERM, Notice: "SIGUSR1"}, strategy.Retry, strategy.CodeRetry, "after the notice SIGUSR1 no attempt is started"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &stage{t: t, notice: test.cause.Notice, scripts: []script{{chatty: true, deaf: true, acts: []act{exit(time.Hour, 0, 0)}}}}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			time.AfterFunc(time.Minute, func() { cancel(test.cause) })
			v, err := newLauncher(s).Run(ctx, first())
			if err != nil || v.Code != test.code {
				t.Errorf("%+v, %v", v, err)
			}
			if len(s.drafts) != 1 {
				t.Fatalf("%d drafts", len(s.drafts))
			}
			d := s.drafts[0]
			if d.Outcome != test.outcome || d.Code != test.code || !strings.Contains(d.Reason, test.says) || len(d.Attempts) != 1 || d.Attempts[0].Error == "" {
				t.Errorf("draft %+v", d)
			}
		})
	}
}

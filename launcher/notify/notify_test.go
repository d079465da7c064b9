package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/launcher/show"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

func TestMain(m *testing.M) {
	ranks.MaybeGuard()
	goleak.VerifyTestMain(m)
}

// A post is a sender that keeps what it is given, and answers as a test sets it.
type post struct {
	mu     sync.Mutex
	sent   []Notification
	answer func(ctx context.Context, m Notification) error
}

func (p *post) send(ctx context.Context, m Notification, body []byte) error {
	if p.answer != nil {
		if err := p.answer(ctx, m); err != nil {
			return err
		}
	}
	var whole Notification
	if err := json.Unmarshal(body, &whole); err != nil || whole.ID != m.ID {
		return fmt.Errorf("the body is another: %s, %w", body, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = append(p.sent, m)
	return nil
}

func (p *post) events() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var words []string
	for _, m := range p.sent {
		words = append(words, m.Run+" "+m.Event)
	}
	return strings.Join(words, ", ")
}

// A stage is a run that notifies others, with its journal.
type stage struct {
	*journal.Journal
	*Notifier
	post   *post
	notes  []string // while the run goes on
	page   bytes.Buffer
	before []launcher.Event
	end    func()
}

// began is the same moment in every life of a run.
var began = time.Now().UTC().Add(-time.Minute)

// begin opens the run of that name below a folder, and notifies by p.
func begin(t *testing.T, ctx context.Context, dir, name string, p *post, on ...string) *stage {
	t.Helper()
	if on == nil {
		on = []string{Rescued, Exhausted, Failed, Trained, Stalled}
	}
	s := &stage{post: p}
	run := filepath.Join(dir, ".gpurun", "gpt", name)
	r := NotifiedRun{Dir: run, Workdir: dir, Version: "v9", Mask: mask.New([]string{"--api-key", "verysecretvalue1"}, nil), Page: show.NewPage(&s.page, nil)}
	var show func(launcher.Event)
	s.Notifier, show = New(strategy.Notify{URL: "https://example.org/x", On: on, Timeout: time.Second}, r, func(launcher.Event) {})
	if s.Notifier != nil {
		s.sender = p
	}
	var err error
	if s.Journal, s.before, err = journal.Open(run, show); err != nil {
		t.Fatal(err)
	}
	s.end = s.Begin(ctx, func(text string) { s.notes = append(s.notes, text) })
	return s
}

// events appends events to the journal.
func (s *stage) events(t *testing.T, events ...launcher.Event) {
	t.Helper()
	for _, e := range events {
		if err := s.Append(e); err != nil {
			t.Fatal(err)
		}
	}
}

// over ends the run's gpurun.
func (s *stage) over(t *testing.T) {
	t.Helper()
	s.end()
	if err := s.Journal.Close(); err != nil {
		t.Error(err)
	}
}

func opening() []launcher.Event {
	return []launcher.Event{
		launcher.Began{Run: "r", Name: "gpt", At: began, Plan: strategy.Plan{"micro_batch_size": "8"}},
		launcher.Started{N: 0, Plan: strategy.Plan{"micro_batch_size": "8"}, At: began},
	}
}

func rescue() []launcher.Event {
	return []launcher.Event{
		launcher.Ended{Evidence: strategy.Evidence{Attempt: 0, Ranks: 1}},
		launcher.Decided{
			Diagnosis: strategy.Diagnosis{Cause: cause.CUDAOOM, Fatal: true},
			Decision: strategy.Decision{Relaunch: true, Remedy: "micro-batch", Rule: "out-of-memory", Reason: "attempt 0: out of memory at\x1b[31m --api-key verysecretvalue1 → micro batch 8→4",
				Next: strategy.Plan{"micro_batch_size": "4"}, Changed: strategy.Changes{"micro_batch_size": {"8", "4"}}},
		},
		launcher.Started{N: 1, Plan: strategy.Plan{"micro_batch_size": "4"}, At: began},
	}
}

func ending(outcome strategy.Outcome, code int) []launcher.Event {
	return []launcher.Event{
		launcher.Ended{Evidence: strategy.Evidence{Attempt: 1, Ranks: 1}},
		launcher.Decided{Diagnosis: strategy.Diagnosis{Cause: cause.None}, Decision: strategy.Decision{Outcome: outcome, Code: code, Reason: "attempt 1: the end"}},
		launcher.Finished{Verdict: launcher.Verdict{Outcome: outcome, Code: code, Reason: "attempt 1: the end"}},
	}
}

func entries(t *testing.T, dir, file string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, ".gpurun", journal.OutboxName, "*", file))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// An event is sent after it was journaled and put into the outbox, once, and as it is written
// down: what it says, without secrets and escape sequences. Training does not wait for it:
// the next attempt is started while the server hangs.
func TestRunIsReported(t *testing.T) {
	dir := t.TempDir()
	asked, hang := make(chan struct{}), make(chan struct{})
	p := &post{}
	p.answer = func(_ context.Context, m Notification) error {
		events, err := journal.Read(filepath.Join(dir, ".gpurun", "gpt", "night"))
		if _, err := os.Stat(filepath.Join(dir, ".gpurun", journal.OutboxName, m.ID, eventFile)); err != nil {
			t.Error(err)
		}
		if err != nil || len(events) < 4 {
			t.Errorf("%d events are journaled, %v", len(events), err)
		}
		if m.Event == Rescued {
			close(asked)
			<-hang
		}
		return nil
	}
	s := begin(t, t.Context(), dir, "night", p)
	s.events(t, opening()...)
	s.events(t, rescue()...) // with the next attempt
	<-asked
	s.events(t, ending(strategy.Trained, 0)...)
	close(hang)
	s.over(t)
	if got := p.events(); got != "night rescued, night trained" {
		t.Fatal(got)
	}
	first, last := p.sent[0], p.sent[1]
	if first.Job != "gpt" || first.Attempt != 0 || first.Cause != cause.CUDAOOM || first.Code != nil || first.Outcome != "" || first.Changed.String() != "micro batch 8→4" ||
		first.Reason != `attempt 0: out of memory at\x1b[31m --api-key *** → micro batch 8→4` || first.Summary != "gpt: "+first.Reason || first.Host == "" || !identity().MatchString(first.ID) {
		t.Errorf("rescued: %+v", first)
	}
	if last.ID == first.ID || last.Outcome != strategy.Trained || last.Code == nil || *last.Code != 0 || last.Attempt != 1 || last.Changed.String() != "micro batch 8→4" || last.Summary != "gpt: trained after 2 attempts, with micro batch 8→4" {
		t.Errorf("trained: %+v", last)
	}
	if len(entries(t, dir, eventFile)) > 0 || len(entries(t, dir, sentFile)) != 2 || s.notes != nil || s.page.Len() > 0 {
		t.Errorf("left %v, said %q %q", entries(t, dir, eventFile), s.notes, s.page.String())
	}
	if found, _ := filepath.Glob(filepath.Join(dir, ".gpurun", journal.OutboxName, "run-*")); len(found) > 0 {
		t.Errorf("%v is left", found)
	}
	again := begin(t, t.Context(), dir, "other", p)
	again.over(t)
	if got := p.events(); got != "night rescued, night trained" {
		t.Errorf("after another start: %s", got)
	}
}

// Which events are sent, and which are not.
func TestReportedEvents(t *testing.T) {
	passing := launcher.Decided{Diagnosis: strategy.Diagnosis{Cause: cause.NCCLError, Fatal: true}, Decision: strategy.Decision{Relaunch: true}}
	hung := launcher.Decided{Diagnosis: strategy.Diagnosis{Cause: cause.Hang, Fatal: true}, Decision: strategy.Decision{Relaunch: true, Reason: "attempt 0: the job hung"}}
	for name, test := range map[string]struct {
		events []launcher.Event
		on     []string
		want   string
	}{
		"stalled":       {slices.Concat([]launcher.Event{launcher.Ended{}, hung}, ending(strategy.Trained, 0)), nil, "r stalled, r trained"},
		"failed":        {ending(strategy.Failed, 1), nil, "r failed"},
		"exhausted":     {slices.Concat(rescue(), ending(strategy.Exhausted, 12)), nil, "r rescued, r exhausted"},
		"not asked for": {slices.Concat(rescue(), ending(strategy.Exhausted, 12)), []string{Trained, Stalled}, ""},
		"stopped":       {[]launcher.Event{launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Stopped, Code: 130}}}, nil, ""},
		"to be retried": {[]launcher.Event{launcher.Finished{Verdict: launcher.Verdict{Outcome: strategy.Retry, Code: 75}}}, nil, ""},
		"a lost peer":   {[]launcher.Event{launcher.Ended{}, passing}, nil, ""},
	} {
		p := &post{}
		s := begin(t, t.Context(), t.TempDir(), "r", p, test.on...)
		s.events(t, slices.Concat(opening(), test.events)...)
		s.over(t)
		if got := p.events(); got != test.want {
			t.Errorf("%s: told %q, want %q", name, got, test.want)
		}
	}
	if n, _ := New(strategy.Notify{URL: "https://example.org", On: []string{}}, NotifiedRun{}, nil); n != nil {
		t.Error("nobody is to be told of nothing")
	}
}

// The end of a run waits for a server that hangs, but not for long, and not at all once
// a user stops gpurun. The next start sends what is left, with the same id.
func TestTheEndIsBounded(t *testing.T) {
	for name, test := range map[string]struct {
		stopped bool
		took    time.Duration
	}{"the end": {false, endBound - cancelBound}, "stopped": {true, 0}} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			asked := make(chan string, 1)
			s := begin(t, ctx, dir, "night", &post{answer: func(ctx context.Context, m Notification) error {
				asked <- m.ID
				<-ctx.Done()
				return ctx.Err()
			}})
			s.events(t, opening()...)
			s.events(t, ending(strategy.Failed, 1)...)
			id := <-asked
			if test.stopped {
				stop()
			}
			at := time.Now()
			s.over(t)
			if took := time.Since(at); took != test.took || s.page.String() != "gpurun: warning: the notification that the run night has failed was not sent: there was not enough time at the end; the next start tries again\n" {
				t.Errorf("%s: it took %v, want %v; said %q", name, took, test.took, s.page.String())
			}
			p := &post{}
			begin(t, t.Context(), dir, "next", p).over(t)
			if p.events() != "night failed" || p.sent[0].ID != id {
				t.Errorf("%s: the next start told %+v, want %s", name, p.sent, id)
			}
		})
	}
}

// What is a day old is dropped with a word; what was sent is forgotten a day later.
func TestOldEvents(t *testing.T) {
	dir := t.TempDir()
	box := outbox{filepath.Join(dir, ".gpurun", journal.OutboxName)}
	add := func(id string, age time.Duration) {
		body, err := json.Marshal(Notification{ID: id, Event: Trained, Run: "old", Time: time.Now().Add(-age)})
		if err == nil {
			_, err = box.put(id, body)
		}
		written := time.Now().Add(-age)
		if err = errors.Join(err, os.Chtimes(filepath.Join(box.dir, id, eventFile), written, written)); err != nil {
			t.Fatal(err)
		}
	}
	add(strings.Repeat("a", 32), 25*time.Hour)
	add(strings.Repeat("b", 32), 23*time.Hour)
	add(strings.Repeat("c", 32), 23*time.Hour)
	long := time.Now().Add(-49 * time.Hour)
	if err := errors.Join(box.sent(strings.Repeat("c", 32)), os.Chtimes(filepath.Join(box.dir, strings.Repeat("c", 32)), long, long)); err != nil {
		t.Fatal(err)
	}
	p := &post{}
	s := begin(t, t.Context(), dir, "now", p)
	s.over(t)
	if got := p.events(); got != "old trained" || len(s.notes) != 1 || !strings.Contains(s.notes[0], "notifications older than 24 hours were dropped unsent: 1") {
		t.Errorf("told %s, said %q", got, s.notes)
	}
	if left := list(box.dir, most); len(left) != 1 || left[0] != strings.Repeat("b", 32) {
		t.Errorf("left: %v", left)
	}
}

// Of several gpuruns in a folder one sends an event: while it does, another one that starts
// sends the others only. What was sent stays so, also where it is put there once more.
func TestOneSendsAnEvent(t *testing.T) {
	dir := t.TempDir()
	box := outbox{filepath.Join(dir, ".gpurun", journal.OutboxName)}
	for i := range 3 {
		m := Notification{ID: fmt.Sprintf("%032x", i), Event: Trained, Run: fmt.Sprint(i), Time: time.Now().Add(time.Duration(i) * time.Minute)}
		body, err := json.Marshal(m)
		if err == nil {
			_, err = box.put(m.ID, body)
		}
		if err = errors.Join(err, os.Chtimes(filepath.Join(box.dir, m.ID, eventFile), m.Time, m.Time)); err != nil {
			t.Fatal(err)
		}
	}
	first, second := &post{}, &post{}
	first.answer = func(context.Context, Notification) error {
		begin(t, t.Context(), dir, "second", second).over(t)
		return nil
	}
	begin(t, t.Context(), dir, "first", first).over(t)
	if first.events() != "0 trained" || second.events() != "1 trained, 2 trained" {
		t.Errorf("one sent %s, the other %s", first.events(), second.events())
	}
	id := first.sent[0].ID
	if fresh, err := box.put(id, []byte("{}")); fresh || err != nil {
		t.Errorf("put again: %v, %v", fresh, err)
	}
	if err := os.WriteFile(filepath.Join(box.dir, id, eventFile), []byte("{}"), 0o600); err != nil { // by one that looked before it was sent
		t.Fatal(err)
	}
	left, _ := box.left(t.Context(), time.Now())
	if _, err := box.read(id); !errors.Is(err, fs.ErrNotExist) || len(left) > 0 {
		t.Errorf("what was sent is to be sent again: %v, %v", left, err)
	}
}

// What cannot be sent is told once: while the run goes on among its notices, after the
// verdict on the page. What is refused is not tried again; what failed for now is, when the
// next event comes, and before that.
func TestFailuresAreReported(t *testing.T) {
	dir := t.TempDir()
	broken := true
	seen := make(chan struct{}, 10)
	p := &post{}
	p.answer = func(_ context.Context, m Notification) error {
		defer func() { seen <- struct{}{} }()
		if m.Event == Trained {
			return &refusal{"hooks.example answers 404"}
		}
		if broken {
			return errors.New("hooks.example: no route")
		}
		return nil
	}
	s := begin(t, t.Context(), dir, "night", p)
	s.events(t, opening()...)
	s.events(t, rescue()...)
	<-seen
	await(t, "the note", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.notes) == 1 && len(s.waiting) == 1 })
	broken = false
	s.events(t, ending(strategy.Trained, 0)...)
	s.over(t)
	if got := p.events(); got != "night rescued" {
		t.Errorf("told %s", got)
	}
	if s.notes[0] != "warning: the notification that the run night has run out of memory and continues was not sent: hooks.example: no route; the next start tries again" ||
		s.page.String() != "gpurun: warning: the notification that the run night has trained was refused: hooks.example answers 404\n" {
		t.Errorf("said %q, then %q", s.notes, s.page.String())
	}
	begin(t, t.Context(), dir, "next", p).over(t)
	if len(p.sent) != 1 {
		t.Errorf("told again: %s", p.events())
	}
}

// One event that a server chokes on keeps no other from it.
func TestAnEventThatAlwaysFails(t *testing.T) {
	dir := t.TempDir()
	begin(t, t.Context(), dir, "poison", &post{answer: func(context.Context, Notification) error { return errors.New("500") }}).whole(t, ending(strategy.Failed, 1))
	failed := make(chan struct{}, 10)
	p := &post{}
	p.answer = func(_ context.Context, m Notification) error {
		if m.Run == "poison" {
			failed <- struct{}{}
			return errors.New("500")
		}
		return nil
	}
	s := begin(t, t.Context(), dir, "night", p)
	<-failed
	s.whole(t, slices.Concat(rescue(), ending(strategy.Trained, 0)))
	if got := p.events(); got != "night rescued, night trained" {
		t.Errorf("told %q", got)
	}
}

// whole is all of a run's events, and its end.
func (s *stage) whole(t *testing.T, events []launcher.Event) {
	t.Helper()
	s.events(t, slices.Concat(opening(), events)...)
	s.over(t)
}

// await waits until something is so, which takes no time that counts.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// Where there can be no outbox, events are sent anyway, and people know what is missing.
func TestWithoutAnOutbox(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := &post{}
	s := begin(t, t.Context(), dir, "night", p)
	s.end()
	s.Notifier, _ = New(strategy.Notify{URL: "https://example.org", On: []string{Failed}}, NotifiedRun{Dir: s.run.Dir, Workdir: filepath.Join(dir, "file"), Page: s.run.Page}, nil)
	s.sender = p
	s.end = s.Begin(t.Context(), func(text string) { s.notes = append(s.notes, text) })
	for _, e := range slices.Concat(opening(), ending(strategy.Failed, 1)) {
		s.see(e)
	}
	s.over(t)
	if p.events() != "night failed" || len(s.notes) != 1 || !strings.Contains(s.notes[0], "the outbox for notifications cannot be written") {
		t.Errorf("told %q, said %q", p.events(), s.notes)
	}
}

// Only the user can read the outbox, and it has no address: only the events.
func TestTheOutboxIsPrivate(t *testing.T) {
	dir := t.TempDir()
	s := begin(t, t.Context(), dir, "night", &post{answer: func(context.Context, Notification) error { return errors.New("down") }})
	s.events(t, opening()...)
	s.events(t, ending(strategy.Failed, 1)...)
	s.over(t)
	files := 0
	err := filepath.WalkDir(filepath.Join(dir, ".gpurun", journal.OutboxName), func(path string, d fs.DirEntry, err error) error {
		info, infoErr := d.Info()
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		} else if text, err := os.ReadFile(path); err != nil || bytes.Contains(text, []byte("example.org")) {
			t.Errorf("%s: %s, %v", path, text, err)
		}
		if files++; infoErr != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), infoErr)
		}
		return err
	})
	if err != nil || files < 4 {
		t.Errorf("%d files, %v", files, err)
	}
}

// An outbox, or an entry, that others could have written is not sent.
func TestFilesThatOthersCouldWriteAreNotSent(t *testing.T) {
	for name, open := range map[string]string{"the outbox": "", "an entry": strings.Repeat("a", 32), "an event": filepath.Join(strings.Repeat("a", 32), eventFile)} {
		dir := t.TempDir()
		box := outbox{filepath.Join(dir, ".gpurun", journal.OutboxName)}
		m := Notification{ID: strings.Repeat("a", 32), Event: Trained, Run: "planted", Time: time.Now()}
		body, err := json.Marshal(m)
		if err == nil {
			_, err = box.put(m.ID, body)
		}
		if err = errors.Join(err, os.Chmod(filepath.Join(box.dir, open), 0o777)); err != nil {
			t.Fatal(err)
		}
		p := &post{}
		begin(t, t.Context(), dir, "now", p).over(t)
		if p.events() != "" {
			t.Errorf("%s: sent %s", name, p.events())
		}
	}
}

// An event that a pod has left is sent by a pod of another user of the volume's group.
func TestEventsOnAVolumeAreSent(t *testing.T) {
	dir := testenv.Volume(t)
	box := outbox{filepath.Join(dir, ".gpurun", journal.OutboxName)}
	m := Notification{ID: strings.Repeat("a", 32), Event: Trained, Run: "left", Time: time.Now()}
	body, err := json.Marshal(m)
	if err == nil {
		_, err = box.put(m.ID, body)
	}
	for _, name := range []string{"", eventFile} {
		err = errors.Join(err, os.Chown(filepath.Join(box.dir, m.ID, name), 4242, -1))
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &post{}
	begin(t, t.Context(), dir, "now", p).over(t)
	if p.events() == "" {
		t.Error("nothing was sent")
	}
}

// What cannot be cut off is left behind: the end of a run waits for it within its bound.
func TestUncuttableText(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		asked, hang := make(chan struct{}), make(chan struct{})
		s := begin(t, t.Context(), dir, "night", &post{answer: func(context.Context, Notification) error {
			close(asked)
			<-hang
			return errors.New("late")
		}})
		s.events(t, opening()...)
		s.events(t, ending(strategy.Failed, 1)...)
		<-asked
		at := time.Now()
		s.over(t)
		close(hang)
		synctest.Wait()
		if took := time.Since(at); took != endBound || strings.Count(s.page.String(), "\n") != 1 || !strings.Contains(s.page.String(), "cannot be cancelled") {
			t.Errorf("it took %v, said %q", took, s.page.String())
		}
	})
}

package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gpurun/gpurun/launcher/nodes/wire"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/strategy"
)

// A Message is one thing that a node says to another. Both sides run the same version, so
// that there is no schema beside these types.
type Message interface{ kind() string }

// What a follower says to the head.
type (
	// Hello says who wants to be part of the launch.
	Hello struct {
		Node    int    `json:"node"`    // its number, from 1
		Inc     string `json:"inc"`     // a name of this life of its gpurun, random
		Run     string `json:"run"`     // the launch: what its engine calls it
		Restart int    `json:"restart"` // how often the engine had started it again
		Version string `json:"version"` // of gpurun
		Digest  string `json:"digest"`  // of the job, as this node reads it
		Ranks   int    `json:"ranks"`   // that it would start
		Host    string `json:"host"`    // its name, for people
		Attempt int    `json:"attempt"` // that it has begun and not ended, -1 for none
		// Unable says why it cannot take part, nil where it can.
		Unable *NotReady `json:"unable,omitempty"`
	}
	// Ready says that all is in place to start the ranks of an attempt. Facts are what was
	// found beforehand, memory that somebody else holds for example.
	Ready struct {
		Attempt int             `json:"attempt"`
		Facts   []strategy.Fact `json:"facts,omitempty"`
	}
	// NotReady says why not. Nothing was started.
	NotReady struct {
		Attempt int    `json:"attempt"`
		Why     string `json:"why"`
		Hint    string `json:"hint,omitempty"`
		Code    int    `json:"code"` // strategy.Code…: whether waiting helps
	}
	// Started says that the node's ranks run.
	Started struct {
		Attempt int `json:"attempt"`
	}
	// Event is a fact about the node's ranks. It is said again after a lost connection until
	// the head has it.
	Event struct {
		Attempt int           `json:"attempt"`
		Seq     int           `json:"seq"` // from 1 in each attempt
		Fact    strategy.Fact `json:"fact"`
		At      time.Time     `json:"at"` // on the node's clock, when it was sent
	}
	// Stopped says that the node's ranks are gone, and all of their facts sent.
	Stopped struct {
		Attempt   int                `json:"attempt"`
		Seq       int                `json:"seq"` // of the last event
		Inventory strategy.Inventory `json:"inventory"`
	}
	// Note is something that people should know.
	Note struct {
		Text string `json:"text"`
	}
	// Leaving says why the node takes no part any more, before it ends its ranks.
	Leaving struct {
		Why string `json:"why"`
	}
	// Paused says that none of the node's ranks goes on before Resume.
	Paused struct{}
	// Bye is the last that a follower says: it has the verdict.
	Bye struct{}
)

// What the head says to a follower.
type (
	// Welcome takes a node into the launch.
	Welcome struct {
		Gen     string    `json:"gen"`     // a name of this life of the head, random
		Dir     string    `json:"dir"`     // the run directory
		Tracked string    `json:"tracked"` // the run's name for experiment trackers
		Began   time.Time `json:"began"`   // when attempt 0 did
		Seq     int       `json:"seq"`     // of the last event that the head has of the node's attempt
	}
	// Reject refuses it.
	Reject struct {
		Why  string `json:"why"`
		Code int    `json:"code"` // with which the refused gpurun ends
	}
	// Prepare asks for everything that comes before the ranks' start.
	Prepare struct {
		Attempt    int           `json:"attempt"`
		Plan       strategy.Plan `json:"plan"`
		Checkpoint string        `json:"checkpoint,omitempty"`
		Digest     string        `json:"digest"` // of what the head's ranks are started with
		Offset     int           `json:"offset"` // the global rank of the node's first one
		World      int           `json:"world"`  // ranks of all nodes
		Nodes      int           `json:"nodes"`
		Confirm    bool          `json:"confirm,omitempty"`
		Closely    bool          `json:"closely,omitempty"`
		Addr       string        `json:"addr"` // where rank 0 will serve the rendezvous
		Port       int           `json:"port"`
		// Reach: somebody listens there now, to see that all nodes reach it.
		Reach bool `json:"reach,omitempty"`
	}
	// Start starts the ranks of a prepared attempt.
	Start struct {
		Attempt int `json:"attempt"`
	}
	// Ack says up to which event the head has heard a node.
	Ack struct {
		Attempt int `json:"attempt"`
		Seq     int `json:"seq"`
	}
	// Stop ends ranks: all of the node's, or with Spare all but these, which go on.
	Stop struct {
		Attempt int           `json:"attempt"`
		Signal  int           `json:"signal"`
		Grace   time.Duration `json:"grace"`
		Spare   []int         `json:"spare,omitempty"` // global ranks
	}
	// Release lets ranks go on that wait before their first optimizer step.
	Release struct{}
	// Stacks has each rank tell where it is.
	Stacks struct{}
	// Notice passes a signal on by which the end of the time was announced to the head.
	Notice struct {
		Signal int `json:"signal"`
	}
	// Pause has the node pause its ranks, and not wait for a sign of the head until Resume or,
	// on a new link, Welcome.
	Pause struct{}
	// Resume lets them go on.
	Resume struct{}
	// Final ends the launch.
	Final struct {
		Code   int    `json:"code"`
		Reason string `json:"reason"`
	}
)

// Alive says on both ways that a node lives; a follower's says how far its ranks are.
type Alive struct {
	Attempt int `json:"attempt"`
	// Signs are what each of the node's ranks last let see of itself, by its global rank,
	// and Progress how far it has come.
	Signs    map[int]strategy.Sign `json:"signs,omitempty"`
	Progress []strategy.Fact       `json:"progress,omitempty"`
	// Samples are what they hold, every few seconds.
	Samples []model.Sample `json:"samples,omitempty"`
	At      time.Time      `json:"at"` // on the sender's clock
}

func (Hello) kind() string    { return "hello" }
func (Ready) kind() string    { return "ready" }
func (NotReady) kind() string { return "not-ready" }
func (Started) kind() string  { return "started" }
func (Event) kind() string    { return "event" }
func (Stopped) kind() string  { return "stopped" }
func (Note) kind() string     { return "note" }
func (Leaving) kind() string  { return "leaving" }
func (Paused) kind() string   { return "paused" }
func (Pause) kind() string    { return "pause" }
func (Resume) kind() string   { return "resume" }
func (Bye) kind() string      { return "bye" }
func (Welcome) kind() string  { return "welcome" }
func (Reject) kind() string   { return "reject" }
func (Prepare) kind() string  { return "prepare" }
func (Start) kind() string    { return "start" }
func (Ack) kind() string      { return "ack" }
func (Stop) kind() string     { return "stop" }
func (Release) kind() string  { return "release" }
func (Stacks) kind() string   { return "stacks" }
func (Notice) kind() string   { return "notice" }
func (Final) kind() string    { return "final" }
func (Alive) kind() string    { return "alive" }

// Encode writes a message: a line with its kind, and its body as JSON.
func Encode(m Message) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the message %q: %w", m.kind(), err)
	}
	return append([]byte(m.kind()+"\n"), body...), nil
}

// readers decode a message's body, by its kind.
var readers = map[string]func([]byte) (Message, error){
	"hello": body[Hello], "ready": body[Ready], "not-ready": body[NotReady], "started": body[Started], "event": body[Event],
	"stopped": body[Stopped], "note": body[Note], "leaving": body[Leaving], "bye": body[Bye], "welcome": body[Welcome], "reject": body[Reject],
	"prepare": body[Prepare], "start": body[Start], "ack": body[Ack], "stop": body[Stop], "release": body[Release],
	"stacks": body[Stacks], "notice": body[Notice], "final": body[Final], "pause": body[Pause], "paused": body[Paused], "resume": body[Resume], "alive": body[Alive],
}

func body[M Message](text []byte) (Message, error) {
	var m M
	err := json.Unmarshal(text, &m)
	return m, err
}

// Decode reads what Encode wrote.
func Decode(text []byte) (Message, error) {
	kind, body, _ := bytes.Cut(text, []byte("\n"))
	read, known := readers[string(kind)]
	if !known {
		return nil, fmt.Errorf("read a message: unknown kind %.32q", kind)
	}
	m, err := read(body)
	if err != nil {
		return nil, fmt.Errorf("read the message %q: %w", kind, err)
	}
	return m, nil
}

// send queues a message on a link.
func send(l *wire.Link, m Message) error {
	text, err := Encode(m)
	if err != nil {
		return err
	}
	return l.Send(text)
}

// receive waits for the next message on a link.
func receive(ctx context.Context, l *wire.Link) (Message, error) {
	text, err := l.Receive(ctx)
	if err != nil {
		return nil, err
	}
	return Decode(text)
}

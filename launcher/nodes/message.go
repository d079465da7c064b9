package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/gpurun/gpurun/launcher"

	"github.com/gpurun/gpurun/strategy"
)

// A Message is one of the types below. Both sides run the same version of gpurun, so these types are the only
// schema.
type Message any

// Messages of a follower.
type (
	// Hello is a node's request to join the launch.
	Hello struct {
		Agreement
		Node    int    `json:"node"`    // its number, from 1
		Process string `json:"process"` // random name of this gpurun process
		Host    string `json:"host"`    // its name, for people
		Attempt int    `json:"attempt"` // attempt that it has begun and not ended, -1 for none
		// Unable is why it cannot take part, nil if it can.
		Unable *NotReady `json:"unable,omitempty"`
	}
	// Ready: the ranks of an attempt can be started. Facts were found beforehand, such as memory that other
	// processes hold.
	Ready struct {
		Attempt int             `json:"attempt"`
		Facts   []strategy.Fact `json:"facts,omitempty"`
	}
	// NotReady: the ranks cannot be started, and none was.
	NotReady struct {
		Attempt int    `json:"attempt"`
		Why     string `json:"why"`
		Hint    string `json:"hint,omitempty"`
		Code    int    `json:"code"` // exit code (strategy.Code…), which shows whether waiting helps
	}
	// Started: the node's ranks run.
	Started struct {
		Attempt int `json:"attempt"`
	}
	// Event is a fact about the node's ranks. After a lost connection it is sent again until the
	// head acknowledges it.
	Event struct {
		Attempt int           `json:"attempt"`
		Seq     int           `json:"seq"` // from 1 in each attempt
		Fact    strategy.Fact `json:"fact"`
		At      time.Time     `json:"at"` // time of sending, on the node's clock
	}
	// Stopped: the node's ranks are gone, and all their facts are sent.
	Stopped struct {
		Attempt   int                `json:"attempt"`
		Seq       int                `json:"seq"` // number of the last event
		Inventory strategy.Inventory `json:"inventory"`
	}
	// Note is a message to the user.
	Note struct {
		Text string `json:"text"`
	}
	// Leaving: the node leaves the launch, and stops its ranks.
	Leaving struct {
		Why string `json:"why"`
	}
	// Bye confirms Final. It is a follower's last message.
	Bye struct{}
)

// Messages of the head.
type (
	// Welcome accepts a node.
	Welcome struct {
		Generation string    `json:"generation"` // random name of this process of the head
		Dir        string    `json:"dir"`        // the run directory
		Tracked    string    `json:"tracked"`    // the run's name for experiment trackers
		Began      time.Time `json:"began"`      // start of attempt 0
		Seq        int       `json:"seq"`        // last event of the node's attempt that the head has
	}
	// Reject refuses a node.
	Reject struct {
		Why  string `json:"why"`
		Code int    `json:"code"` // exit code of the refused gpurun
	}
	// Prepare orders everything that precedes the ranks' start. Its launch has no command and folder: each
	// node makes its own.
	Prepare struct {
		Launch launcher.Launch `json:"launch"`
		Digest string          `json:"digest"` // digest of the command of the head's ranks
		// Reach: the head listens at the address of the rendezvous until the nodes have connected to it.
		Reach bool `json:"reach,omitempty"`
	}
	// Start starts the ranks of a prepared attempt.
	Start struct {
		Attempt int `json:"attempt"`
	}
	// Ack acknowledges a node's events up to Seq.
	Ack struct {
		Attempt int `json:"attempt"`
		Seq     int `json:"seq"`
	}
	// Stop stops the node's ranks, except those in Spare.
	Stop struct {
		Attempt int           `json:"attempt"`
		Signal  int           `json:"signal"`
		Grace   time.Duration `json:"grace"`
		Spare   []int         `json:"spare,omitempty"` // global ranks
	}
	// Release resumes ranks that wait before their first optimizer step.
	Release struct{}
	// Stacks requests the stack of each rank.
	Stacks struct{}
	// Notice passes on a signal that announces the end of the job's time.
	Notice struct {
		Signal int `json:"signal"`
	}
	// Pause pauses the node's ranks. The head is silent until Resume or, on a new link, Welcome.
	Pause struct{}
	// Resume ends a pause.
	Resume struct{}
	// Final ends the launch.
	Final struct {
		Code   int    `json:"code"`
		Reason string `json:"reason"`
	}
)

// Alive is a sign of life, in both directions. A follower's has the state of its ranks.
type Alive struct {
	Attempt int `json:"attempt"`
	// Signs are the latest signs of the node's ranks by global rank, and Progress their steps.
	Signs    map[int]strategy.Sign `json:"signs,omitempty"`
	Progress []strategy.Fact       `json:"progress,omitempty"`
	// Samples are the memory and steps of these ranks, every few seconds.
	Samples []strategy.Sample `json:"samples,omitempty"`
	At      time.Time         `json:"at"` // on the sender's clock
}

// kinds maps each message's name to its type.
var kinds = map[string]reflect.Type{}

func init() {
	for _, m := range []Message{
		Hello{}, Ready{}, NotReady{}, Started{}, Event{}, Stopped{}, Note{}, Leaving{}, Bye{},
		Welcome{}, Reject{}, Prepare{}, Start{}, Ack{}, Stop{}, Release{}, Stacks{}, Notice{}, Pause{}, Resume{},
		Final{}, Alive{},
	} {
		kinds[reflect.TypeOf(m).Name()] = reflect.TypeOf(m)
	}
}

// encode returns a message as a line with its kind, and its body as JSON.
func encode(m Message) ([]byte, error) {
	kind := reflect.TypeOf(m).Name()
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the message %q: %w", kind, err)
	}
	return append([]byte(kind+"\n"), body...), nil
}

func decode(text []byte) (Message, error) {
	kind, body, _ := bytes.Cut(text, []byte("\n"))
	t, known := kinds[string(kind)]
	if !known {
		return nil, fmt.Errorf("read a message: unknown kind %.32q", kind)
	}
	m := reflect.New(t)
	if err := json.Unmarshal(body, m.Interface()); err != nil {
		return nil, fmt.Errorf("read the message %q: %w", kind, err)
	}
	return m.Elem().Interface(), nil
}

// send queues a message on a link.
func send(l *Link, m Message) error {
	text, err := encode(m)
	if err != nil {
		return err
	}
	return l.Send(text)
}

// receive waits for the next message on a link.
func receive(ctx context.Context, l *Link) (Message, error) {
	text, err := l.Receive(ctx)
	if err != nil {
		return nil, err
	}
	return decode(text)
}

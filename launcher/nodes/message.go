package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/nodes/wire"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/strategy"
)

// A Message is one thing that a node says to another. Both sides run the same version, so
// that there is no schema beside these types.
type Message any

// What a follower says to the head.
type (
	// Hello says who wants to be part of the launch.
	Hello struct {
		Launch
		Node    int    `json:"node"`    // its number, from 1
		Inc     string `json:"inc"`     // a name of this life of its gpurun, random
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
	// Prepare asks for everything that comes before the ranks' start. The launch is without its
	// command and folder, which each node makes.
	Prepare struct {
		Launch launcher.Launch `json:"launch"`
		Digest string          `json:"digest"` // of what the head's ranks are started with
		// Reach: somebody listens now where rank 0 will serve the rendezvous, to see that all
		// nodes reach it.
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

// kinds are the types of all messages, by their names.
var kinds = map[string]reflect.Type{}

func init() {
	for _, m := range []Message{
		Hello{}, Ready{}, NotReady{}, Started{}, Event{}, Stopped{}, Note{}, Leaving{}, Paused{}, Bye{},
		Welcome{}, Reject{}, Prepare{}, Start{}, Ack{}, Stop{}, Release{}, Stacks{}, Notice{}, Pause{}, Resume{}, Final{}, Alive{},
	} {
		kinds[reflect.TypeOf(m).Name()] = reflect.TypeOf(m)
	}
}

// encode writes a message: a line with its kind, and its body as JSON.
func encode(m Message) ([]byte, error) {
	kind := reflect.TypeOf(m).Name()
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the message %q: %w", kind, err)
	}
	return append([]byte(kind+"\n"), body...), nil
}

// decode reads what encode wrote.
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
func send(l *wire.Link, m Message) error {
	text, err := encode(m)
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
	return decode(text)
}

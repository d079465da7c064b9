package strategy

import (
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

// TestServerTakesShorterSequencesWhileLoading: a server without memory for requests of full
// length gets shorter ones, only with permission; a job that trains holds none while it loads.
func TestServerTakesShorterSequencesWhileLoading(t *testing.T) {
	server := Job{Ranks: 1, LocalRanks: 1, DataParallel: 1, Knobs: map[Knob]Range{
		MicroBatchSize: {Absent: "a server has no batch of training"}, GradientAccumulationSteps: {Absent: "a server accumulates no gradients"},
		SequenceLength: {Min: 1},
	}}
	long := Plan{SequenceLength: "16384"}
	allowed := defaults
	allowed.Numerics = Any
	history := []Attempt{ended(0, long, oom(cause.Load))}
	if d := Decide(allowed, server, history, h100); !d.Relaunch || d.Remedy != RemedySequence || d.Next[SequenceLength] != "8192" {
		t.Errorf("with permission: %+v", d)
	}
	if d := Decide(defaults, server, history, h100); d.Relaunch {
		t.Errorf("without: %+v", d)
	}
	trains := server
	trains.Knobs = map[Knob]Range{MicroBatchSize: {Min: 1}, GradientAccumulationSteps: {Min: 1}, SequenceLength: {Min: 1}}
	if d := Decide(allowed, trains, history, h100); d.Relaunch {
		t.Errorf("a job that trains: %+v", d)
	}
}

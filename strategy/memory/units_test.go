package memory

import "testing"

// What FSDP gathers follows its units: a model that is one unit is whole on each rank.
func TestUnitsOfFSDPAreGathered(t *testing.T) {
	model := TrainedModel{Parameters: 1e9, Trainable: 1e9, Outside: 1e8, Bytes: map[string]int64{"float32": 4e9}, Blocks: []BlockList{{Path: "h", Count: 18, Parameters: 9e8}}}
	plan := RankPlan{MicroBatch: 1, Weights: "fp32", Compute: "bf16", Sharding: "fsdp", DataParallel: 8}
	gathered := func() float64 { return NewPredictor(model, DeviceMemory{}, nil).states(plan).gather }
	blocks := gathered()
	model.UnitOutermost, model.UnitLargest = 1e8, 5e7
	if each := gathered(); each != blocks {
		t.Errorf("%.0f bytes are gathered where each block is a unit, %.0f by the blocks", each, blocks)
	}
	model.UnitOutermost, model.UnitLargest = 1e9, 0
	if whole := gathered(); whole != 2e9 {
		t.Errorf("%.0f bytes of 1e9 parameters are gathered in 16 bits", whole)
	}
}

package recipes

import (
	"github.com/gpurun/gpurun/recipes/deepspeed"
	"github.com/gpurun/gpurun/recipes/format"
)

// rules are what binds settings of one framework together, by the names that
// recipe files use.
var rules = format.Rules{
	"deepspeed-config":        deepspeed.Rule,
	"trainer-state":           trainerState,
	"accelerate-accumulation": launchedAccumulation,
	"accelerator-call":        acceleratorCall,
	"trainer-arguments":       trainerArguments,
	"trl-arguments":           trlArguments,
	"text-encoder":            textEncoder,
	"vllm-serve":              vllmServe,
	"swift-version":           swiftVersion,
	"lightning-configs":       {Shape: mergedConfigs},
	"lightning-intervals":     {Shape: countedIntervals},
	"swift-accumulation":      {Shape: swiftAccumulation},
	"ultralytics-batch":       {Shape: ultralyticsBatch},
	"training-loader":         trainingLoader,
	"accumulated-features":    accumulatedFeatures,
}

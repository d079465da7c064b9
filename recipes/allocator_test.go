package recipes_test

import (
	"maps"
	"testing"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
)

// TestAllocator: the variable is merged key by key, and a key that the user set
// is never replaced.
func TestAllocator(t *testing.T) {
	const old, renamed = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
	tests := []struct {
		name   string
		env    map[string]string
		now    strategy.Value
		absent string
		want   map[string]string
	}{
		{"nothing set", nil, "default", "", map[string]string{old: "expandable_segments:True"}},
		{"empty", map[string]string{old: ""}, "default", "", map[string]string{old: "expandable_segments:True"}},
		{"another key", map[string]string{old: "max_split_size_mb:64,"}, "default", "", map[string]string{old: "max_split_size_mb:64,expandable_segments:True"}},
		{"brackets", map[string]string{old: "roundup_power2_divisions:[256:1,512:2]"}, "default", "",
			map[string]string{old: "roundup_power2_divisions:[256:1,512:2],expandable_segments:True"}},
		{"new name", map[string]string{renamed: "garbage_collection_threshold:0.8"}, "default", "",
			map[string]string{renamed: "garbage_collection_threshold:0.8,expandable_segments:True"}},
		{"on already", map[string]string{old: "expandable_segments:True"}, "expandable", old + " sets expandable_segments itself", nil},
		{"off by the user", map[string]string{renamed: "expandable_segments: False"}, "default", renamed + " sets expandable_segments itself", nil},
		{"another allocator", map[string]string{old: "backend:cudaMallocAsync"}, "default", old + " chooses the allocator cudaMallocAsync", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cmd := recipes.Command{Argv: []string{"x.py"}, Env: test.env}
			plan, ranges, err := recipes.Recipe{}.Read(cmd, recipes.Topology{})
			if err != nil || plan[strategy.Allocator] != test.now || ranges[strategy.Allocator].Absent != test.absent {
				t.Fatalf("plan %v, %+v, %v", plan, ranges[strategy.Allocator], err)
			}
			if test.want == nil {
				return
			}
			change, err := recipes.Recipe{}.Apply(cmd, strategy.Plan{strategy.Allocator: "expandable"}, recipes.Topology{}, attempt)
			if err != nil || !maps.Equal(change.Env, test.want) {
				t.Errorf("variables %v, %v; want %v", change.Env, err, test.want)
			}
		})
	}
}

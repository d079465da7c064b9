package job

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// safetensors is a file of one tensor of n bytes, of which have are there.
func safetensors(n string, have int) string {
	header := `{"__metadata__":{"format":"pt"},"w":{"dtype":"U8","shape":[` + n + `],"data_offsets":[0,` + n + `]}}`
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + strings.Repeat("x", have)
}

// TestHalfWrittenFolders: what each framework writes last has to be there.
func TestHalfWrittenFolders(t *testing.T) {
	trainer := []string{"trainer_state.json"}
	tests := []struct {
		name  string
		files map[string]string // below the checkpoint's folder, or beside it
		path  string
		needs []string
		whole bool
	}{
		{"Trainer", map[string]string{"checkpoint-2/model.safetensors": safetensors("8", 8), "checkpoint-2/trainer_state.json": "{}"}, "checkpoint-2", trainer, true},
		{"Trainer, no state yet", map[string]string{"checkpoint-2/model.safetensors": safetensors("8", 8)}, "checkpoint-2", trainer, false},
		{"Trainer that no recipe knows", map[string]string{"checkpoint-2/training_args.bin": "x", "checkpoint-2/optimizer.pt": "x"}, "checkpoint-2", nil, false},
		{"cut safetensors", map[string]string{"checkpoint-2/model.safetensors": safetensors("8", 7), "checkpoint-2/trainer_state.json": "{}"}, "checkpoint-2", trainer, false},
		{"cut header", map[string]string{"checkpoint-2/model.safetensors": safetensors("8", 8)[:20], "checkpoint-2/trainer_state.json": "{}"}, "checkpoint-2", trainer, false},
		{"a shard is missing", map[string]string{"checkpoint-2/model-00001-of-00002.safetensors": safetensors("1", 1)}, "checkpoint-2", nil, false},
		{"all shards", map[string]string{"checkpoint-2/model-00001-of-00002.safetensors": safetensors("1", 1), "checkpoint-2/model-00002-of-00002.safetensors": safetensors("1", 1)}, "checkpoint-2", nil, true},
		{"an index of more files", map[string]string{"c/pytorch_model.bin.index.json": `{"weight_map": {"w": "a.bin", "v": "b.bin"}}`, "c/a.bin": "x"}, "c", nil, false},
		{"DeepSpeed", map[string]string{"checkpoint-2/global_step2/mp_rank_00_model_states.pt": "x", "checkpoint-2/latest": "global_step2\n", "checkpoint-2/trainer_state.json": "{}"}, "checkpoint-2", trainer, true},
		{"DeepSpeed, latest not written", map[string]string{"checkpoint-2/global_step2/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt": "x", "checkpoint-2/trainer_state.json": "{}"}, "checkpoint-2", trainer, false},
		{"DeepSpeed, latest of a tag that is not there", map[string]string{"c/global_step2/mp_rank_00_model_states.pt": "x", "c/latest": "global_step9"}, "c", nil, false},
		{"DeepSpeed's tag itself", map[string]string{"global_step2/mp_rank_00_model_states.pt": "x", "latest": "global_step2"}, "global_step2", nil, true},
		{"an earlier tag", map[string]string{"global_step1/mp_rank_00_model_states.pt": "x", "global_step2/mp_rank_00_model_states.pt": "x", "latest": "global_step2"}, "global_step1", nil, true},
		{"a tag that latest does not name yet", map[string]string{"global_step1/mp_rank_00_model_states.pt": "x", "global_step2/mp_rank_00_model_states.pt": "x", "latest": "global_step1"}, "global_step2", nil, false},
		{"Lightning's DeepSpeed folder", map[string]string{"e.ckpt/checkpoint/mp_rank_00_model_states.pt": "x", "e.ckpt/latest": "checkpoint"}, "e.ckpt", nil, true},
		{"distributed", map[string]string{"step-2/__0_0.distcp": "x", "step-2/.metadata": "x"}, "step-2", nil, true},
		{"distributed, no metadata yet", map[string]string{"step-2/__0_0.distcp": "x"}, "step-2", nil, false},
		{"distributed below", map[string]string{"checkpoint-2/pytorch_model_fsdp_0/__1_0.distcp": "x", "checkpoint-2/trainer_state.json": "{}"}, "checkpoint-2", trainer, false},
		{"a folder with the name of an unfinished one", map[string]string{"step_2.tmp/model.pt": "x"}, "step_2.tmp", nil, false},
		{"a model that is no checkpoint of the Trainer", map[string]string{"final/training_args.bin": "x"}, "final", nil, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range test.files {
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				writeFile(t, path, text)
			}
			got, err := CompleteCheckpoint(dir, test.path, time.Time{}, test.needs...)
			if test.whole && (err != nil || got != test.path) || !test.whole && !errors.Is(err, errIncomplete) {
				t.Errorf("%q, %v", got, err)
			}
			newest, err := NewestCheckpoint(dir, test.path, time.Time{}, test.needs...)
			if err != nil || (newest != "") != test.whole {
				t.Errorf("newest %q, %v", newest, err)
			}
		})
	}
}

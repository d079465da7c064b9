package job

import (
	"encoding/json"
	"errors"
	"github.com/gpurun/gpurun/launcher/lazy"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

var (
	// shardName is the name of one of several files of the same weights, as
	// transformers and diffusers write them: model-00001-of-00003.safetensors.
	shardName = lazy.Regexp(`^(.+-)(\d{5})-of-(\d{5})(\..+)$`)
	// deepSpeedState is a file that DeepSpeed writes into a tag's folder.
	deepSpeedState = lazy.Regexp(`^(bf16_|fp16_)?zero_pp_rank_\d+_.*_states\.pt$|^mp_rank_\d+_.*_states\.pt$`)
)

// wholeFolder refuses a folder without what its writer adds last: the .metadata
// of torch.distributed.checkpoint, DeepSpeed's file latest, the Trainer's
// trainer_state.json, and the rest of a set of shards.
func wholeFolder(dir string) error {
	names, err := entryNames(dir)
	if err != nil {
		return err
	}
	has := func(name string) bool { return slices.Contains(names, name) }
	distributed := slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, ".distcp") })
	switch {
	case distributed && !has(".metadata"):
		return errIncomplete
	case has("training_args.bin") && !has("trainer_state.json") && strings.HasPrefix(filepath.Base(dir), "checkpoint-"):
		return errIncomplete
	}
	for _, name := range names {
		if err := wholeShards(names, name); err != nil {
			return err
		}
		if strings.HasSuffix(name, ".index.json") {
			if err := wholeIndex(filepath.Join(dir, name), names); err != nil {
				return err
			}
		}
	}
	for _, name := range names {
		if isTag(filepath.Join(dir, name)) {
			if _, err := latestTag(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// wholeTag refuses a checkpoint that lacks what it needs, and a tag of DeepSpeed that the file
// latest does not name yet.
func wholeTag(path string, needs []string) error {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return err
	}
	for _, need := range needs {
		if matches, err := filepath.Glob(filepath.Join(path, need)); err != nil || len(matches) == 0 {
			return errIncomplete
		}
	}
	if !isTag(path) {
		return nil
	}
	latest, err := latestTag(filepath.Dir(path))
	if err != nil {
		return err
	}
	if base := filepath.Base(path); base != latest && compareNumbers(numbersIn(base), numbersIn(latest)) >= 0 {
		return errIncomplete
	}
	return nil
}

// isTag reports whether a folder holds what DeepSpeed writes under one tag.
func isTag(dir string) bool {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return false // nor may a pipe be opened
	}
	names, err := entryNames(dir)
	return err == nil && slices.ContainsFunc(names, deepSpeedState().MatchString)
}

// latestTag is the tag that DeepSpeed names as complete, once all ranks have
// written theirs.
func latestTag(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "latest"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", errIncomplete
	}
	if err != nil {
		return "", err
	}
	tag := strings.TrimSpace(string(text))
	if tag == "" || !isTag(filepath.Join(dir, tag)) {
		return "", errIncomplete
	}
	return tag, nil
}

// wholeShards refuses one of several files whose others are not all there.
func wholeShards(names []string, name string) error {
	m := shardName().FindStringSubmatch(name)
	if m == nil {
		return nil
	}
	total, err := strconv.Atoi(m[3])
	if err != nil {
		return nil
	}
	there := 0
	for _, other := range names {
		if o := shardName().FindStringSubmatch(other); o != nil && o[1] == m[1] && o[3] == m[3] && o[4] == m[4] {
			there++
		}
	}
	if there < total {
		return errIncomplete
	}
	return nil
}

// wholeIndex refuses an index of weights that names a file which is not there.
func wholeIndex(path string, names []string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var index struct {
		Files map[string]string `json:"weight_map"`
	}
	if json.Unmarshal(text, &index) != nil {
		return errIncomplete
	}
	for _, file := range index.Files {
		if !slices.Contains(names, file) {
			return errIncomplete
		}
	}
	return nil
}

// entryNames lists a folder.
func entryNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	return names, err
}

package script

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/test/testenv"
)

// TestArgumentsAreReadThroughAClass: a data module gives its batch size to a loader.
func TestArgumentsAreReadThroughAClass(t *testing.T) {
	python := testenv.Python(t)
	const source = `from torch.utils.data import DataLoader
class DM:
    def __init__(self, data, size=32):
        self.data, self.other = data, size
        self.batch_size = size
    def train_dataloader(self):
        return DataLoader(self.data, batch_size=self.batch_size, shuffle=True)
    def val_dataloader(self):
        return DataLoader(self.data, batch_size=self.batch_size)
dm = DM(read(), size=64)
`
	saved := strings.NewReplacer("        self.batch_size = size\n", "        self.save_hyperparameters()\n", "=self.batch_size, s", "=self.hparams.size, s").Replace(source)
	for name, test := range map[string]struct{ text, want string }{
		"a keyword":        {source, "64"},
		"by position":      {strings.Replace(source, "size=64", "48", 1), "48"},
		"the default":      {strings.Replace(source, ", size=64", "", 1), "32"},
		"hyperparameters":  {saved, "64"},
		"two instances":    {source + "DM(read(), size=8)\n", ""},
		"set from outside": {source + "dm.batch_size = 8\n", ""},
		"computed":         {strings.Replace(source, "size=64", "size=64 // n", 1), ""},
		"changed":          {strings.Replace(source, "        self.batch_size = size", "        size = size // 2\n        self.batch_size = size", 1), ""},
		"a subclass":       {source + "class More(DM):\n    pass\n", ""},
	} {
		request := SourceRequest{Sources: []format.Source{{Path: "train.py", Text: []byte(test.text)}}}
		input, err := request.Input()
		if err != nil {
			t.Fatal(err)
		}
		interpreter := exec.CommandContext(t.Context(), python, "-c", request.Program())
		interpreter.Stdin = bytes.NewReader(input)
		printed, err := interpreter.Output()
		if err != nil {
			t.Fatal(err)
		}
		var read struct{ Files format.ScriptCode }
		if err := json.Unmarshal(bytes.TrimSpace(printed), &read); err != nil {
			t.Fatal(err)
		}
		value, _ := read.Files.CallsOf("torch.utils.data.DataLoader")[0].Given("batch_size")
		if value.Text != test.want || value.Known != (test.want != "") {
			t.Errorf("%s: %q, %t, want %q", name, value.Text, value.Known, test.want)
		}
	}
}

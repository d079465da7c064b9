package source

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCallsOf: a call is found under whatever name the imports give it, and under no other.
func TestCallsOf(t *testing.T) {
	const name = "lightning.pytorch.Trainer"
	for text, want := range map[string]string{
		"from lightning.pytorch import Trainer\nTrainer(x=1)":                              "1",
		"from lightning.pytorch import (\n    Callback,\n    Trainer as T,\n)\nt = T(x=2)": "2",
		"from lightning.pytorch.trainer import Trainer\nTrainer(x=3)":                      "3",
		"import lightning.pytorch as pl\npl.Trainer(\n    a=0,\n    x=4,\n)":               "4",
		"import lightning as L\nL.pytorch.Trainer(x=5)":                                    "5",
		"import lightning.pytorch\nlightning.pytorch.Trainer(x=6)":                         "6",
		"from lightning import pytorch as pl\npl.Trainer(x=7)":                             "7",
		"from transformers import Trainer\nTrainer(x=8)":                                   "",
		"# from lightning.pytorch import Trainer\nTrainer(x=9)":                            "",
		"from lightning.pytorch import Trainer\nself.Trainer(x=1)":                         "",
		"from lightning.pytorch import Trainer\nclass Mine(Trainer): pass":                 "",
	} {
		got := ""
		for _, call := range CallsOf([]byte(text), name) {
			v, _ := call.Given("x")
			got += v.Text
		}
		if got != want {
			t.Errorf("%q: found %q, want %q", text, got, want)
		}
	}
}

// TestGiven: what is no literal is known to be given, and not as what.
func TestGiven(t *testing.T) {
	call := CallsOf([]byte("from m import f\nf(a=16, b=size, c='bf16', d=True, **more)"), "m.f")[0]
	type given struct {
		Value Value
		There bool
	}
	want := map[string]given{
		"a": {Value{Text: "16", Known: true}, true}, "b": {Value{}, true}, "c": {Value{Text: "bf16", Known: true}, true},
		"d": {Value{Text: "True", Known: true}, true}, "e": {Value{}, true},
	}
	got := map[string]given{}
	for k := range want {
		v, there := call.Given(k)
		got[k] = given{v, there}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("given (-want +got):\n%s", diff)
	}
	if _, there := (Call{}).Given("a"); there {
		t.Error("a call without arguments gives one")
	}
}

package errext

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
)

func TestCodeAndHintTravelWithTheError(t *testing.T) {
	inner := WithCode(WithHint(fs.ErrNotExist, "make it"), 74)
	err := fmt.Errorf("open the run: %w", inner)
	if got := Hint(err); got != "make it" {
		t.Errorf("the hint is %q", got)
	}
	if got := Code(err, 2); got != 74 {
		t.Errorf("the code is %d", got)
	}
	if !errors.Is(err, fs.ErrNotExist) || err.Error() != "open the run: file does not exist" {
		t.Errorf("the error became %v", err)
	}
}

func TestOutermostHintCountsAndNilStaysNil(t *testing.T) {
	err := WithCode(WithHint(WithCode(Errorf("inner", "x"), 1), "outer"), 75)
	if Hint(err) != "outer" || Code(err, 0) != 75 {
		t.Errorf("got %q, %d", Hint(err), Code(err, 0))
	}
	if WithHint(nil, "x") != nil || WithCode(nil, 1) != nil {
		t.Error("nil became an error")
	}
	if Hint(errors.New("x")) != "" || Code(errors.New("x"), 2) != 2 {
		t.Error("a bare error has a hint or a code")
	}
}

// This file gives random tests their seed: the same one each time, so that a change
// alone decides whether they pass, or that of GPURUN_SEED. A test that uses package rapid
// imports it for its effect.

package testenv

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// fixed is the seed where GPURUN_SEED names none.
const fixed = 1

// Of is the seed of a test, which it logs.
func Of(t testing.TB) uint64 {
	t.Helper()
	seed := seed()
	t.Logf("GPURUN_SEED=%d", seed)
	return seed
}

func seed() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("GPURUN_SEED"), 10, 64); err == nil {
		return n
	}
	return fixed
}

// rapid has its flags once it is imported; a flag on the command line counts more.
var _ = rapid.Check

func init() {
	if err := flag.Set("rapid.seed", strconv.FormatUint(max(seed(), 1), 10)); err != nil {
		panic(err)
	}
}

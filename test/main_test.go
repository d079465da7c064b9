package test

import (
	"os"
	"testing"

	"github.com/gpurun/gpurun/test/testenv"
)

// shared is a folder that the tests share.
var shared string

func TestMain(m *testing.M) {
	tests := testenv.Isolate(m)
	shared = tests.Folder
	os.Exit(tests.Run())
}

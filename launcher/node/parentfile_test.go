package node

import (
	"encoding/json"
	"testing"
)

func TestWithErrorCode(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		code int
		want string
	}{
		"an object":      {`{"message":{"message":"KeyError: 1","extraInfo":{"timestamp":"17"}},"more":1}`, -9, `{"message":{"errorCode":-9,"extraInfo":{"timestamp":"17"},"message":"KeyError: 1"},"more":1}`},
		"the older form": {`{"message":"KeyError: 1","timestamp":17}`, 1, `{"message":"KeyError: 1","timestamp":17}`},
		"no code":        {`{"message":{"message":"x"}}`, 0, `{"message":{"message":"x"}}`},
		"null":           {`{"message":null}`, 1, `{"message":null}`},
		"no JSON":        {`{"mess`, 1, `{"mess`},
	} {
		got := withErrorCode([]byte(test.text), test.code)
		if string(got) != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
		if json.Valid([]byte(test.text)) && !json.Valid(got) {
			t.Errorf("%s: no JSON any more", name)
		}
	}
}

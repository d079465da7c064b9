package job

import (
	"strings"
	"time"

	"github.com/gpurun/gpurun/recipes/document"
)

// A table reads one table of a train.toml: what every file's tables have, and
// the paths, durations and sizes of this one.
type table struct{ *document.Table }

func (t *table) has(key string) bool                 { return t.Has(key) }
func (t *table) get(key string) (any, bool)          { return t.Get(key) }
func (t *table) bad(key, format string, args ...any) { t.Bad(key, format, args...) }
func (t *table) text(key, fallback string) string    { return t.Text(key, fallback) }
func (t *table) filled(key string) string            { return t.Filled(key) }
func (t *table) words(key string) []string           { return t.Words(key) }
func (t *table) texts(key string) map[string]string  { return t.Texts(key) }
func (t *table) choice(key, fallback string, words ...string) string {
	return t.Choice(key, fallback, words...)
}
func (t *table) badAt(path []string, format string, args ...any) { t.BadAt(path, format, args...) }

// file reads a path. Nothing is expanded in it.
func (t *table) file(key, fallback string) string {
	s := t.text(key, fallback)
	switch {
	case strings.HasPrefix(s, "~"):
		t.bad(key, "only a shell expands ~; write the path out, or ./%s for a file of that name", s)
	case strings.Contains(s, "\x00"):
		t.bad(key, "holds a NUL character")
		return fallback
	}
	return s
}

// duration reads "30s" or "2h30m", of at least least.
func (t *table) duration(key string, fallback, least time.Duration) time.Duration {
	v, set := t.get(key)
	if !set {
		return fallback
	}
	s, ok := v.(string)
	if !ok {
		if n, isNumber := document.Number(v); isNumber {
			t.bad(key, "%v", bareDuration(n))
		} else {
			t.bad(key, "want a duration such as \"30s\", found %s", document.Describe(v))
		}
		return fallback
	}
	d, err := parseDuration(s)
	switch {
	case err != nil:
		t.bad(key, "%v", err)
	case d < least:
		t.bad(key, "%q is less than %v", s, least)
	default:
		return d
	}
	return fallback
}

// size reads "24GiB", in bytes.
func (t *table) size(key string) int64 {
	v, set := t.get(key)
	if !set {
		return 0
	}
	s, ok := v.(string)
	if n, isNumber := document.Number(v); isNumber {
		s, ok = n, true
	}
	if !ok {
		t.bad(key, "want a size such as \"24GiB\", found %s", document.Describe(v))
		return 0
	}
	bytes, err := ParseSize(s)
	if err != nil {
		t.bad(key, "%v", err)
	}
	return bytes
}

package job

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/strategy"
)

// notifyFrom has the places of the secrets of [notify] until they are read: names of variables, and absolute
// paths.
type notifyFrom struct{ urlEnv, urlFile, secretEnv, secretFile string }

var (
	notifyEvents = []string{"rescued", "exhausted", "failed", "trained", "stalled"}
	// notifyWhere are the keys for the destination, notifySecret the keys for the signature.
	notifyWhere  = []string{"url", "url_env", "url_file", "command"}
	notifySecret = []string{"secret_env", "secret_file"}
)

const (
	defaultNotifyTimeout = 10 * time.Second
	longestNotifyTimeout = time.Minute
	largestSecret        = 16 << 10 // bytes of a file that holds a URL or a secret
)

// readNotify reads [notify]. If a file sets a destination, the secret of the user's configuration does
// not apply to it.
func (r *reader) readNotify() {
	if _, set := r.root["notify"]; !set {
		return
	}
	t, n, from := r.table("notify"), &r.job.Notify, &r.job.notifyFrom
	where := slices.ContainsFunc(notifyWhere, t.Has)
	if where {
		*n, *from = strategy.Notify{On: n.On, Timeout: n.Timeout}, notifyFrom{}
	}
	t.oneOf(notifyWhere)
	t.oneOf(notifySecret)
	t = r.formed(t)
	n.URL = r.address(t, n.URL)
	if t.Has("command") {
		n.Command = r.notifyCommand(t)
	}
	from.urlEnv, from.urlFile = t.source("url_env", from.urlEnv), r.path(t.secretFile("url_file", from.urlFile))
	from.secretEnv, from.secretFile = t.source("secret_env",
		from.secretEnv), r.path(t.secretFile("secret_file", from.secretFile))
	for _, key := range notifySecret {
		if t.Has(key) && t.Has("command") {
			t.Bad(key, "is only for a URL; a command gets the event as JSON")
		}
	}
	if text := t.Text("timeout", ""); t.Has("timeout") {
		d, err := parseDuration(text)
		if err != nil || d < time.Second || d > longestNotifyTimeout {
			t.Bad("timeout", "want a duration from %v to %v, such as \"30s\"", time.Second, longestNotifyTimeout)
		}
		n.Timeout = d
	}
	r.notifyOn(t)
	if r.job.Path != "" && n.URL == "" && n.Command == nil && *from == (notifyFrom{}) && !where {
		r.problems = append(r.problems, Problem{Key: []string{"notify"},
			Message: "names no destination: it needs " + strings.Join(notifyWhere, ", ")})
	}
}

// oneOf reports all but the first of keys that exclude each other.
func (t *fileTable) oneOf(keys []string) {
	first := ""
	for _, key := range keys {
		switch {
		case t.Has(key) && first == "":
			first = key
		case t.Has(key):
			t.Bad(key, "contradicts %s; keep one of them", first)
		}
	}
}

// formed returns [notify] without values of a wrong form, which it reports. Problems of [notify] do not quote
// values, since a secret may be at the wrong key.
func (r *reader) formed(t *fileTable) *fileTable {
	kept := map[string]any{}
	for _, key := range notifyKeys {
		value, set := t.Get(key.Name)
		list, isList := value.([]any)
		_, isText := value.(string)
		switch {
		case !set:
		case key.Form != ListForm && !isText:
			t.Bad(key.Name, "want text")
		case key.Form == ListForm &&
			(!isList || slices.ContainsFunc(list, func(e any) bool { _, text := e.(string); return !text })):
			t.Bad(key.Name, "want an array of texts, such as %s", cmp.Or(key.Example, key.Default))
		default:
			kept[key.Name] = value
		}
	}
	return &fileTable{edit.NewTable(kept, &r.problems, "notify")}
}

// variableName matches the name of a variable.
var variableName = lazy.Regexp(`^[A-Za-z_][A-Za-z0-9_]*$`)

// source reads the name of a variable.
func (t *fileTable) source(key, fallback string) string {
	if !t.Has(key) {
		return fallback
	}
	name := t.Text(key, "")
	if !variableName().MatchString(name) {
		t.Bad(key, "want the name of a variable, such as \"GPURUN_NOTIFY_URL\"")
	}
	return name
}

// secretFile reads the path of a file with a secret, which is not the secret itself.
func (t *fileTable) secretFile(key, fallback string) string {
	if !t.Has(key) {
		return fallback
	}
	path := t.Text(key, "")
	switch {
	case strings.Contains(path, "://"):
		t.Bad(key, "is an address; want the path of a file that holds it")
	case path == "" || strings.Contains(path, "\x00"):
		t.Bad(key, "want the path of a file")
	case strings.HasPrefix(path, "~"):
		t.Bad(key, "only a shell expands ~; write the path out")
	}
	return path
}

// badWord reports a word that is not allowed, with the word that was probably meant.
func (t *fileTable) badWord(path []string, got string, words []string) {
	t.Report(Problem{Key: t.Path(path...), AtValue: true, Suggest: edit.Nearest(got, words),
		Message: "unknown value, want " + edit.Either(words)})
}

// address reads notify.url. Problems do not quote the address.
func (r *reader) address(t *fileTable, fallback string) string {
	if !t.Has("url") {
		return fallback
	}
	text := t.Filled("url")
	if why := badURL(text); text != "" && why != "" {
		t.Bad("url", "%s", why)
	}
	return text
}

// badURL explains why nothing can be posted to an address; empty if it can.
func badURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "is not the address of a web server"
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return "want an address that begins with https:// or http:// and a host"
	}
	return ""
}

// notifyCommand reads the program that receives each event, and its arguments.
func (r *reader) notifyCommand(t *fileTable) []string {
	words := t.Words("command")
	if len(words) == 0 || words[0] == "" {
		if array, _ := t.Get("command"); array != nil && words != nil {
			t.Bad("command", "names no program")
		}
		return nil
	}
	return append([]string{r.program(words[0])}, words[1:]...)
}

// notifyOn reads which events are sent.
func (r *reader) notifyOn(t *fileTable) {
	if !t.Has("on") {
		return
	}
	r.job.Notify.On = t.Words("on")
	for i, event := range r.job.Notify.On {
		if !slices.Contains(notifyEvents, event) {
			t.badWord([]string{"on", strconv.Itoa(i)}, event, notifyEvents)
		}
	}
}

// takeNotify reads the address and the secret from the environment and from files. If one is missing, the job
// trains without notifications, after a warning.
func (j *Job) takeNotify(env commandline.Environ) {
	n, from := &j.Notify, j.notifyFrom
	var err error
	if n.URL == "" {
		n.URL, err = lookUp(env, "url", from.urlEnv, from.urlFile)
		if err == nil && n.URL != "" && badURL(n.URL) != "" {
			err = fmt.Errorf("the value that %s names is not an address that begins with https:// or http:// and a host",
				from.urlKey())
		}
	}
	if err == nil && n.Command == nil {
		n.Secret, err = lookUp(env, "secret", from.secretEnv, from.secretFile)
	}
	if err == nil || len(n.On) == 0 {
		return
	}
	n.URL, n.Secret, n.Missing = "", "", err.Error()
	j.Warnings = append(j.Warnings, fmt.Sprintf("[notify]: %v; this run sends no notifications until that is fixed", err))
}

// urlKey returns the key that names the place of the address.
func (f notifyFrom) urlKey() string {
	if f.urlEnv != "" {
		return "url_env"
	}
	return "url_file"
}

// plainName matches names of variables that are certainly not a secret, put there by mistake: words of
// capital letters, with a number after them.
var plainName = lazy.Regexp(`^[A-Z]{2,16}(_[A-Z]{1,16}|_\d{1,3}){0,6}$`)

// lookUp reads a secret from a variable or a file; empty if neither is named. Errors name the key. They quote
// the name of a variable only if it is plain, since it may be a secret by mistake.
func lookUp(env commandline.Environ, what, variable, path string) (string, error) {
	switch {
	case variable != "":
		text := strings.TrimSpace(env[variable])
		if text == "" {
			if plainName().MatchString(variable) {
				return "", fmt.Errorf("the variable %s, which %s_env names, is not set", variable, what)
			}
			return "", fmt.Errorf("the variable that %s_env names is not set", what)
		}
		return text, nil
	case path == "":
		return "", nil
	}
	content, err := ReadFile(path, largestSecret)
	text := strings.TrimSpace(string(content))
	var inner *fs.PathError
	switch {
	case errors.As(err, &inner):
		return "", fmt.Errorf("the file that %s_file names cannot be read: %w", what, inner.Err)
	case err != nil:
		return "", fmt.Errorf("the file that %s_file names cannot be read", what)
	case text == "" || strings.ContainsAny(text, "\n\x00"):
		return "", fmt.Errorf("the file that %s_file names does not hold one line", what)
	}
	return text, nil
}

// hidden returns the secrets of [notify] to mask in texts: the address, its path, unless that may be an
// ordinary word, and the key of the signature.
func hidden(n strategy.Notify) (secrets []string) {
	_, address, _ := strings.Cut(n.URL, "://")
	_, path, _ := strings.Cut(address, "/")
	if path != "" {
		secrets = append(secrets, address)
	}
	if len(path) >= shortestPath && strings.ContainsAny(path, "0123456789") {
		secrets = append(secrets, path)
	}
	return append(secrets, n.Secret)
}

// shortestPath is the least length in bytes of an address's path that counts as a secret by itself.
const shortestPath = 12

// Secrets returns the secrets of [notify], to mask in texts.
func (p *Prepared) Secrets() []string { return hidden(p.Job.Notify) }

// addressed matches an address in a line of a file, with a scheme or as the value of a url. Everything after
// its host is a secret.
var addressed = lazy.Regexp(`([A-Za-z]+:/+[^/"'\s]*|\burl\s*=\s*["']*[^/:"'\s]+/)([^"'\s]*)`)

// hushed returns the faults of a text with secrets redacted. All values of [notify] are removed, also from
// the parser's quotes. Elsewhere the secret part of an address is replaced by stars, one for each character,
// so that the caret stays right.
func hushed(text []byte, faults []Fault) []Fault {
	lines := strings.Split(string(text), "\n")
	for i := range faults {
		f := &faults[i]
		if inNotify(f, lines) {
			hush(f)
			continue
		}
		f.Source = addressed().ReplaceAllStringFunc(f.Source, func(at string) string {
			host := addressed().FindStringSubmatch(at)[1]
			return host + strings.Repeat("*", utf8.RuneCountInString(at[len(host):]))
		})
	}
	return faults
}

var (
	notifyLine = lazy.Regexp(`^\[*\s*["']?notify\b`)
	headerLine = lazy.Regexp(`^\[+\s*[A-Za-z][\w.\s-]*\]+\s*(#.*)?$`)
	// quietLine matches a line of [notify] that shows no value.
	quietLine = lazy.Regexp(`^\s*(\[\s*notify\s*\]|notify\s*=|(notify\.)?[a-z_]+\s*=)`)
	// repeated matches the only message of the parser that may be shown for a line of [notify].
	repeated = lazy.Regexp(`^not TOML: (key|table) [a-z_]+ (is already defined|already exists)$`)
)

// inNotify reports whether a fault is in [notify]. If the text is not TOML, it looks at the lines above the
// fault.
func inNotify(f *Fault, lines []string) bool {
	if f.Key == "notify" || strings.HasPrefix(f.Key, "notify.") {
		return true
	}
	for n := min(f.Line, len(lines)) - 1; n >= 0; n-- {
		line := strings.TrimSpace(lines[n])
		if notifyLine().MatchString(line) {
			return true
		}
		if headerLine().MatchString(line) {
			return false
		}
	}
	return false
}

// hush removes the values from a fault in [notify].
func hush(f *Fault) {
	if shown := quietLine().FindString(f.Source); len(shown) < len(strings.TrimRight(f.Source, " \t")) {
		f.Source = strings.TrimLeft(shown+" ***", " ")
	}
	if strings.HasPrefix(f.Message, "not TOML: ") && !repeated().MatchString(f.Message) {
		f.Message = "not TOML: this line cannot be read, or one above it; quote values (they are not shown, since they may be secrets)"
	}
	if key, _, quoted := strings.Cut(f.Key, `"`); quoted {
		f.Key = key + "***"
	}
}

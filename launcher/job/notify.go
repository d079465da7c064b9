package job

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gpurun/gpurun/launcher/environ"
)

// Notify is whom gpurun tells of a run, and of what. It is zero where it tells nobody.
type Notify struct {
	// URL is where events are posted, a secret as a whole. It is empty where there is a
	// Command, which gets each event on its stdin, or Missing says why.
	URL     string
	Command []string
	Style   string // "json", "slack", "discord" or "teams"
	Secret  string // signs what is posted; empty for none
	On      []string
	// Timeout bounds each try, and the command.
	Timeout time.Duration
	// Missing is why nobody can be told at present; empty where somebody can.
	Missing string
}

// notifyFrom are where the secrets of [notify] stand, until they are looked up: names of
// variables, and absolute paths.
type notifyFrom struct{ urlEnv, urlFile, secretEnv, secretFile string }

var (
	notifyEvents = []string{"rescued", "exhausted", "failed", "trained", "stalled"}
	notifyStyles = []string{"json", "slack", "discord", "teams"}
	// notifyWhere are the keys that say where to, notifySecret those of the signature.
	notifyWhere  = []string{"url", "url_env", "url_file", "command"}
	notifySecret = []string{"secret_env", "secret_file"}
)

const (
	defaultNotifyTimeout = 10 * time.Second
	longestNotifyTimeout = time.Minute
	largestSecret        = 16 << 10 // bytes of a file that holds a URL or a secret
)

// readNotify reads [notify]. A file that says where to send says all about that place: its
// style and its secret are not those of the user's configuration.
func (r *reader) readNotify() {
	if _, set := r.root["notify"]; !set {
		return
	}
	t, n, from := r.table("notify"), &r.job.Notify, &r.job.notifyFrom
	if slices.ContainsFunc(notifyWhere, t.has) {
		*n, *from = Notify{Style: notifyStyles[0], On: n.On, Timeout: n.Timeout}, notifyFrom{}
	}
	t.oneOf(notifyWhere)
	t.oneOf(notifySecret)
	n.URL = r.address(t, n.URL)
	if t.has("command") {
		n.Command = r.notifyCommand(t)
	}
	from.urlEnv, from.urlFile = t.source("url_env", from.urlEnv), r.path(t.file("url_file", from.urlFile))
	from.secretEnv, from.secretFile = t.source("secret_env", from.secretEnv), r.path(t.file("secret_file", from.secretFile))
	n.Style = t.choice("style", n.Style, notifyStyles...)
	for _, key := range append([]string{"style"}, notifySecret...) {
		if t.has(key) && t.has("command") {
			t.bad(key, "is for what is posted to a URL; a command gets the event as JSON")
		}
	}
	if n.Timeout = t.duration("timeout", n.Timeout, time.Second); n.Timeout > longestNotifyTimeout {
		t.bad("timeout", "is more than %v", longestNotifyTimeout)
	}
	r.notifyOn(t)
	if r.job.Path != "" && n.URL == "" && n.Command == nil && *from == (notifyFrom{}) && !slices.ContainsFunc(notifyWhere, t.has) {
		r.problems = append(r.problems, Problem{Key: []string{"notify"}, Message: "says nothing of where to: it needs " + strings.Join(notifyWhere, ", ")})
	}
}

// oneOf reports all but the first of keys that say the same thing.
func (t *table) oneOf(keys []string) {
	first := ""
	for _, key := range keys {
		switch {
		case t.has(key) && first == "":
			first = key
		case t.has(key):
			t.bad(key, "is said already, by %s; keep one of them", first)
		}
	}
}

// source reads the name of a variable.
func (t *table) source(key, fallback string) string {
	if !t.has(key) {
		return fallback
	}
	name := t.filled(key)
	if strings.ContainsAny(name, "=$ ") || strings.Contains(name, "://") {
		t.bad(key, "want the name of a variable, such as \"GPURUN_NOTIFY_URL\"")
	}
	return name
}

// address reads notify.url. What is wrong is told without the address.
func (r *reader) address(t *table, fallback string) string {
	if !t.has("url") {
		return fallback
	}
	text := t.filled("url")
	if why := badURL(text); text != "" && why != "" {
		t.bad("url", "%s", why)
	}
	return text
}

// badURL says why nothing can be posted to an address; empty where it can.
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

// notifyCommand reads the program that gets each event, and its arguments.
func (r *reader) notifyCommand(t *table) []string {
	words := t.words("command")
	if len(words) == 0 || words[0] == "" {
		if array, _ := t.get("command"); array != nil && words != nil {
			t.bad("command", "names no program")
		}
		return nil
	}
	return append([]string{r.program(words[0])}, words[1:]...)
}

// notifyOn reads the events that are told.
func (r *reader) notifyOn(t *table) {
	if !t.has("on") {
		return
	}
	r.job.Notify.On = t.words("on")
	for i, event := range r.job.Notify.On {
		if !slices.Contains(notifyEvents, event) {
			t.BadWord([]string{"on", strconv.Itoa(i)}, event, notifyEvents)
		}
	}
}

// takeNotify looks up the address and the secret, in the environment and in files. That
// one of them is not there keeps nobody from training: it is a warning, and nobody is told.
func (j *Job) takeNotify(env environ.Vars) {
	n, from := &j.Notify, j.notifyFrom
	var err error
	if n.URL == "" {
		n.URL, err = lookUp(env, from.urlEnv, from.urlFile)
		if err == nil && n.URL != "" && badURL(n.URL) != "" {
			err = fmt.Errorf("%s holds no address that begins with https:// or http:// and a host", from.urlEnv+from.urlFile)
		}
	}
	if err == nil && n.Command == nil {
		n.Secret, err = lookUp(env, from.secretEnv, from.secretFile)
	}
	if err == nil || len(n.On) == 0 {
		return
	}
	n.URL, n.Secret, n.Missing = "", "", err.Error()
	j.Warnings = append(j.Warnings, fmt.Sprintf("[notify]: %v; nobody is told of this run until that is mended", err))
}

// lookUp reads a secret from a variable or a file; it is empty where neither is named.
func lookUp(env environ.Vars, variable, path string) (string, error) {
	switch {
	case variable != "":
		text := strings.TrimSpace(env[variable])
		if text == "" {
			return "", fmt.Errorf("the variable %s is not set", variable)
		}
		return text, nil
	case path == "":
		return "", nil
	}
	content, err := readFile(path, largestSecret)
	text := strings.TrimSpace(string(content))
	var inner *fs.PathError
	switch {
	case errors.As(err, &inner):
		return "", fmt.Errorf("%s cannot be read: %w", path, inner.Err)
	case err != nil:
		return "", err
	case text == "" || strings.ContainsAny(text, "\n\x00"):
		return "", fmt.Errorf("%s does not hold one line", path)
	}
	return text, nil
}

// Hidden are the secrets of [notify] as they could come to stand in a text: the address, its
// path where that is no word that means something elsewhere, and the key of the signature.
func (n Notify) Hidden() (secrets []string) {
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

// shortestPath is how many bytes the path of an address has that is a secret by itself.
const shortestPath = 12

// Notify is whom gpurun tells of the job's runs.
func (p *Prepared) Notify() Notify { return p.resolved.job.Notify }

// addressed is an address in a line of a file, with a scheme or as the value of a url. What
// follows its host is a secret.
var addressed = regexp.MustCompile(`([A-Za-z]+:/+[^/"'\s]*|\burl\s*=\s*["']*[^/:"'\s]+/)([^"'\s]*)`)

// unaddressed are faults whose lines may be shown: stars stand for what is secret in an
// address, one for each character, so that the caret stands right.
func unaddressed(faults []Fault) []Fault {
	for i, f := range faults {
		faults[i].Source = addressed.ReplaceAllStringFunc(f.Source, func(at string) string {
			host := addressed.FindStringSubmatch(at)[1]
			return host + strings.Repeat("*", utf8.RuneCountInString(at[len(host):]))
		})
	}
	return faults
}

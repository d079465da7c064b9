package show

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// browser is a Chromium of this machine.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no Chromium on the path: Debian's package is chromium")
	return ""
}

// open opens a page in the browser, and returns the text of its two streams.
func open(t *testing.T, chromium, page string, flags ...string) (out, log string) {
	t.Helper()
	flags = append([]string{"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--disable-default-apps", "--user-data-dir=" + t.TempDir(), "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--v=0", "--window-size=1100,3000"}, flags...)
	cmd := exec.CommandContext(t.Context(), chromium, append(flags, "file://"+page)...)
	cmd.WaitDelay = 10 * time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	for line := range strings.Lines(stderr.String()) {
		if strings.Contains(line, "CONSOLE") {
			log += line
		}
	}
	return string(text), log
}

// own are the hosts that Chromium asks on its own account.
var own = regexp.MustCompile(`^https?://[a-z0-9.-]*\.(google|googleapis)\.com/`)

// asked returns the addresses that a browser's network log has as requested, but for
// files and those that it asks on its own account.
func asked(t *testing.T, path string) (addresses []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var log struct {
		Constants struct {
			Types map[string]int `json:"logEventTypes"`
		} `json:"constants"`
		Events []struct {
			Type   int `json:"type"`
			Params struct {
				URL string `json:"url"`
			} `json:"params"`
		} `json:"events"`
	}
	if err := json.Unmarshal(text, &log); err != nil {
		t.Fatal(err)
	}
	if len(log.Constants.Types) == 0 {
		t.Fatal("the log of the network has another form")
	}
	for _, e := range log.Events {
		if e.Type == log.Constants.Types["URL_REQUEST_START_JOB"] && e.Params.URL != "" && !strings.HasPrefix(e.Params.URL, "file:") && !own.MatchString(e.Params.URL) {
			addresses = append(addresses, e.Params.URL)
		}
	}
	return addresses
}

// A real browser shows the pages without an error and without any request to the
// network: it applies the style, and its document has the same figures.
func TestInABrowser(t *testing.T) {
	chromium := browser(t)
	dir, _ := rescued(t)
	for name, page := range map[string]string{"a rescue": pageOf(t, dir), "hostile text": pageOf(t, hostileReport(t, evil, 3))} {
		at := filepath.Join(t.TempDir(), "report.html")
		if err := os.WriteFile(at, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
		netlog := filepath.Join(t.TempDir(), "net.json")
		dom, log := open(t, chromium, at, "--dump-dom", "--log-net-log="+netlog)
		if log != "" {
			t.Errorf("%s: the console has %s", name, log)
		}
		for _, address := range asked(t, netlog) {
			t.Errorf("%s: it asked for %s", name, address)
		}
		held, shown := elements(page, "data-attempt"), elements(dom, "data-attempt")
		if fmt.Sprint(held) != fmt.Sprint(shown) || len(held) < 10 {
			t.Errorf("%s: the page has %d figures, the browser %d, and they differ", name, len(held), len(shown))
		}
	}
}

// The check of the console finds what the policy forbids.
func TestTheBrowserObeysThePolicy(t *testing.T) {
	chromium := browser(t)
	page := strings.Replace(pageOf(t, copied(t, "lightning")), "</main>", `<script>document.title="ran"</script><img src="http://localhost:9/x"></main>`, 1)
	at := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(at, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	netlog := filepath.Join(t.TempDir(), "net.json")
	dom, log := open(t, chromium, at, "--dump-dom", "--log-net-log="+netlog)
	if strings.Count(log, "Content Security Policy") < 2 || strings.Contains(dom, "<title>ran") || len(asked(t, netlog)) > 0 {
		t.Errorf("the policy lets pass: %s %q", log, asked(t, netlog))
	}
}

// A phone's width is enough: only tables are wider, in boxes that scroll. The copies
// have no policy, so that a script can measure them, and a picture be asked for.
func TestOnAPhone(t *testing.T) {
	chromium := browser(t)
	dir, _ := rescued(t)
	folder := t.TempDir()
	frame := `<!DOCTYPE html><title>wide</title><script>onmessage=e=>{document.title+=" "+e.data}</script>`
	for name, page := range map[string]string{"rescue": pageOf(t, dir), "hostile": pageOf(t, hostileReport(t, evil, 3))} {
		page = regexp.MustCompile(`<meta http-equiv[^>]*>`).ReplaceAllString(page, "")
		page = strings.Replace(page, "</body>", `<img src="http://localhost:9/x" width="1"><script>parent.postMessage(document.documentElement.scrollWidth,"*")</script></body>`, 1)
		if err := os.WriteFile(filepath.Join(folder, name+".html"), []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
		frame += `<iframe src="` + name + `.html" width="390" height="2000" style="border:0"></iframe>`
	}
	if err := os.WriteFile(filepath.Join(folder, "frame.html"), []byte(frame), 0o600); err != nil {
		t.Fatal(err)
	}
	netlog := filepath.Join(t.TempDir(), "net.json")
	dom, _ := open(t, chromium, filepath.Join(folder, "frame.html"), "--dump-dom", "--virtual-time-budget=5000", "--log-net-log="+netlog)
	if !strings.Contains(dom, "<title>wide 390 390</title>") {
		t.Error(regexp.MustCompile(`<title>[^<]*`).FindString(dom))
	}
	if len(asked(t, netlog)) == 0 {
		t.Error("a picture that was asked for is not in the log of the network")
	}
}

// Screenshots and a print are written to the folder REPORT_SHOTS, for people to look at.
func TestScreenshots(t *testing.T) {
	folder := os.Getenv("REPORT_SHOTS")
	if folder == "" {
		t.Skip("REPORT_SHOTS=folder keeps screenshots there: light, dark, 390 pixels wide, printed")
	}
	chromium := browser(t)
	dir, _ := rescued(t)
	at := filepath.Join(folder, "report.html")
	frame := `<!DOCTYPE html><body style="margin:0"><iframe src="report.html" width="390" height="3000" style="border:0"></iframe>`
	err := errors.Join(os.WriteFile(at, []byte(pageOf(t, dir)), 0o600), os.WriteFile(filepath.Join(folder, "frame.html"), []byte(frame), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	open(t, chromium, at, "--screenshot="+filepath.Join(folder, "light.png"))
	open(t, chromium, at, "--blink-settings=preferredColorScheme=0", "--screenshot="+filepath.Join(folder, "dark.png"))
	open(t, chromium, filepath.Join(folder, "frame.html"), "--screenshot="+filepath.Join(folder, "phone.png"))
	open(t, chromium, at, "--no-pdf-header-footer", "--print-to-pdf="+filepath.Join(folder, "print.pdf"))
}

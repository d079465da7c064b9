package testenv

import (
	"fmt"
	"regexp"
	"strings"
)

// Block is a block of code on a page.
type Block struct {
	Line  int      // of its first line, from 1
	Lang  string   // "sh": commands; "console": commands after "$ ", and what they print; or a file's format
	Marks []string // of the comment above it: <!-- exits 2, numbers vary -->
	Text  string
}

// Mark returns the rest of the mark that begins with a word.
func (b Block) Mark(word string) (rest string, found bool) {
	for _, m := range b.Marks {
		if rest, found = strings.CutPrefix(m, word); found {
			return strings.Trim(rest, " :"), true
		}
	}
	return "", false
}

// Blocks returns the blocks of code of a page. Each has to be fenced and to name its language.
func Blocks(page string) (all []Block, err error) {
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		if strings.HasPrefix(lines[i], "    ") && (i == 0 || lines[i-1] == "") {
			return nil, fmt.Errorf("line %d: a block of code without a fence: %s", i+1, lines[i])
		}
		lang, fence := strings.CutPrefix(lines[i], "```")
		if !fence {
			continue
		}
		if lang == "" {
			return nil, fmt.Errorf("line %d: a block of code without a language", i+1)
		}
		b := Block{Line: i + 2, Lang: lang}
		if i > 0 {
			if m := regexp.MustCompile(`^<!-- (.*) -->$`).FindStringSubmatch(lines[i-1]); m != nil {
				b.Marks = strings.Split(m[1], ", ")
			}
		}
		for i++; i < len(lines) && lines[i] != "```"; i++ {
			b.Text += lines[i] + "\n"
		}
		all = append(all, b)
	}
	return all, nil
}

// Shown compares what a page shows of an output with the output. "…" stands for any text, a line of "…" for any
// lines. With vary, a number stands for any number, and 23s for 1m6s.
func Shown(shown, printed string, vary bool) error {
	want := regexp.QuoteMeta(strings.TrimSpace(shown))
	if vary {
		want = regexp.MustCompile(`\d+(\\\.\d+)?`).ReplaceAllString(want, `\d+(\.\d+)?(m\d+)?`)
	}
	want = regexp.MustCompile(`(?m)^…$\n?`).ReplaceAllString(want, `(?:.*\n)*?`)
	want = strings.ReplaceAll(want, "…", ".*")
	printed = regexp.MustCompile(`(?m)[ ]+$`).ReplaceAllString(strings.TrimSpace(printed), "")
	if !regexp.MustCompile(`^` + want + `\n?$`).MatchString(printed + "\n") {
		return fmt.Errorf("the page shows\n%s\nand printed is\n%s", shown, printed)
	}
	return nil
}

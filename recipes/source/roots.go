package source

import (
	"bytes"
	"regexp"
	"slices"
)

// Classes are those of some sources. A source is read when somebody asks for a class
// that it may have.
type Classes struct {
	sources [][]byte
	texts   map[int]string
	read    map[int][]class
}

// ClassesOf are the classes of sources.
func ClassesOf(sources ...[]byte) *Classes {
	return &Classes{sources: sources, texts: map[int]string{}, read: map[int][]class{}}
}

// alias matches one item of an import: DPOConfig as Config.
var alias = regexp.MustCompile(`\b([A-Za-z_]\w*)[ \t]+as[ \t]+([A-Za-z_]\w*)`)

// Roots are the classes from outside the sources that a class of that name extends,
// directly or through others: itself, where the sources have none of that name. One
// that extends a class of its own name extends that of another package. object and ABC
// are none.
func (c *Classes) Roots(name string) []string {
	var roots []string
	c.follow(name, nil, map[string]bool{}, func(root string) {
		if !slices.Contains(roots, root) {
			roots = append(roots, root)
		}
	})
	return roots
}

// follow calls found with each root that is reached from a name, past the classes
// that were gone through to it. Each is followed once: done are those that were.
func (c *Classes) follow(name string, past []string, done map[string]bool, found func(string)) {
	switch {
	case slices.Contains(past, name):
		found(name)
		return
	case done[name]:
		return
	}
	done[name] = true
	beyond := append(slices.Clip(past), name)
	if defined := c.named(name); len(defined) > 0 {
		for _, one := range defined {
			for _, base := range one.bases {
				if base != "object" && base != "ABC" && base != "Protocol" {
					c.follow(base, beyond, done, found)
				}
			}
		}
		return
	}
	if other := c.renamed(name); other != "" && !slices.Contains(beyond, other) {
		c.follow(other, beyond, done, found)
		return
	}
	found(name)
}

// text is a source without comments.
func (c *Classes) text(i int) string {
	text, there := c.texts[i]
	if !there {
		text = withoutComments(string(c.sources[i]))
		c.texts[i] = text
	}
	return text
}

// named are the classes of a name.
func (c *Classes) named(name string) []class {
	var all []class
	for i, source := range c.sources {
		if !bytes.Contains(source, []byte("class "+name)) {
			continue
		}
		if _, there := c.read[i]; !there {
			c.read[i] = classesOf(c.text(i))
		}
		for _, one := range c.read[i] {
			if one.name == name {
				all = append(all, one)
			}
		}
	}
	return all
}

// renamed is what a source imports under a name that is not its own, empty for nothing.
func (c *Classes) renamed(name string) string {
	for i, source := range c.sources {
		if !bytes.Contains(source, []byte(" as "+name)) {
			continue
		}
		for _, m := range alias.FindAllStringSubmatch(c.text(i), -1) {
			if m[2] == name {
				return m[1]
			}
		}
	}
	return ""
}

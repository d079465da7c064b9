package ranks

import (
	"github.com/gpurun/gpurun/launcher/lazy"
	"strconv"
)

// DefaultTemplate is the prefix that torchrun puts before the lines of -t.
const DefaultTemplate = "[${role_name}${local_rank}]:"

// placeholder matches those of Python's string.Template: $$, $name, ${name}.
var placeholder = lazy.Regexp(`\$(?:\$|([_a-zA-Z][_a-zA-Z0-9]*)|\{([_a-zA-Z][_a-zA-Z0-9]*)\})`)

// prefix fills in the template for one rank, as Python's safe_substitute does: unknown names
// stay unchanged.
func (o *Output) prefix(r *rank) string {
	role, template := o.opts.Role, o.opts.Template
	if role == "" {
		role = "default"
	}
	if template == "" {
		template = DefaultTemplate
	}
	values := map[string]string{
		"role_name":     role,
		"rank":          strconv.Itoa(r.global),
		"local_rank":    strconv.Itoa(r.local),
		"group_rank":    strconv.Itoa(o.opts.Group),
		"restart_count": strconv.Itoa(o.opts.Restarts),
	}
	return placeholder().ReplaceAllStringFunc(template, func(s string) string {
		if s == "$$" {
			return "$"
		}
		m := placeholder().FindStringSubmatch(s)
		if v, ok := values[m[1]+m[2]]; ok {
			return v
		}
		return s
	})
}

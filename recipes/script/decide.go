package script

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// A FoundKnob is one knob of a script with its evidence.
type FoundKnob struct {
	Knob strategy.Knob
	// Doubt is the reason why it is only likely; empty: it is certain.
	Doubt string
	// Refusal is the reason why a certain knob must not change.
	Refusal string
	// Why are the sentences of evidence, each with its file and line.
	Why []string
	// Derived: the accumulation follows from a total that does not change.
	Derived bool

	target target
}

// Name is the setting's name for people: "--batch-size"; empty if it is derived.
func (f FoundKnob) Name() string {
	if f.Derived {
		return ""
	}
	return f.target.name()
}

// An Analysis has the knobs that the source of a job's script shows.
type Analysis struct {
	// Found are the knobs that are certain or likely, in the order of Knobs.
	Found []FoundKnob
	// Missing has for each other knob the names that were searched for, and where.
	Missing map[strategy.Knob]string
	Resume  Continuation
	// Reported: the micro batch is not known from the sources, and the job's process reports it.
	Reported bool
	// Unlike: the micro batch is not the value of an argument alone, whatever its name is: a loader
	// of the training has a constant, or computes it.
	Unlike bool

	files   []configuration
	omitted string // why a loader of another branch makes no batches
	facts   Facts
	loss    strategy.Loss
	script  string
	argv    []string
	read    func(path string) []byte
}

// Decide separates the certain knobs from the likely ones. script is the script's name for
// people, argv its words; read returns a file by a path in Facts, nil if there is none.
func Decide(f Facts, script string, argv []string, read func(path string) []byte) Analysis {
	s := Analysis{Missing: map[strategy.Knob]string{}, facts: f, script: script, argv: argv, read: read}
	s.taken()
	micro := s.microBatch()
	accumulation := s.accumulation(micro)
	if f.Unread != "" {
		s.loss = strategy.Loss{Class: strategy.Average, Reason: notRead + f.Unread}
	}
	if micro != nil {
		s.equivalent(micro, accumulation)
		s.Found = append(s.Found, *micro)
	}
	if accumulation != nil {
		s.Found = append(s.Found, *accumulation)
	}
	for _, found := range []*FoundKnob{s.evaluation(micro), s.checkpointing(), s.workers(), s.sequence()} {
		if found != nil {
			s.Found = append(s.Found, *found)
		}
	}
	for i := range s.Found {
		s.overlaid(&s.Found[i])
		found := s.Found[i]
		if n, known := s.below(found.target.under); known {
			s.Found[i].target.fallback = n
		}
		if inherited, known := s.inherited(found.target); known && found.target.via != nil {
			s.Found[i].target.fallback = inherited
		}
		if found.target.hydra {
			if n, known := s.hydraNumber(found.target.path); known {
				s.Found[i].target.fallback = float64(n)
			}
		}
	}
	s.Resume = s.resumption()
	return s
}

// lookedIn names the files that were read.
func (s *Analysis) lookedIn() string {
	switch n := s.facts.Modules - 1; {
	case n == 1:
		return s.script + " and 1 module"
	case n > 1:
		return fmt.Sprintf("%s and %d modules", s.script, n)
	}
	return s.script
}

// miss records that a knob was not found; how describes the code in its place.
func (s *Analysis) miss(k strategy.Knob, how string) *FoundKnob {
	text := fmt.Sprintf("%s not recognised in %s", called[k], s.lookedIn())
	switch given := s.like(k); {
	case followed(how):
		text = how
	case given != nil:
		text = fmt.Sprintf("%s may be the %s, but it is not certain: %s", strings.Join(given, " or "), called[k], cmp.Or(how, notFollowed))
	case how != "" && (k == strategy.MicroBatchSize || k == strategy.DataloaderWorkers):
		text = how // which says of what loader
	case how != "":
		text += "; " + how
	}
	s.Missing[k] = text
	return nil
}

// named lists the settings whose name alone suggests a knob.
func (s *Analysis) named(k strategy.Knob) []Argument {
	var found []Argument
	for _, one := range s.facts.Settings {
		if !one.Idle && names[k]().MatchString(strings.ToLower(one.Dest)) && !slices.ContainsFunc(found, func(o Argument) bool { return slices.Equal(o.Options, one.Options) }) {
			found = append(found, one)
		}
	}
	return found
}

// followed reports whether the reason for a missing knob says what its value is, so that a name alone does not count.
func followed(why string) bool {
	return strings.Contains(why, constantText) || strings.Contains(why, computedText)
}

// notFollowed is the doubt about an argument that only its name suggests.
const notFollowed = "where its value goes was not followed"

// like lists the arguments of the script and of the command that have the name of a batch size, or of a number of workers.
func (s *Analysis) like(k strategy.Knob) (given []string) {
	if k != strategy.MicroBatchSize && k != strategy.DataloaderWorkers {
		return nil
	}
	for _, one := range s.named(k) {
		if k == strategy.MicroBatchSize || strings.Contains(one.Dest, "worker") {
			given = append(given, one.long()[0])
		}
	}
	for i, word := range s.argv {
		head, _, _ := strings.Cut(word, "=")
		known := slices.ContainsFunc(s.facts.Settings, func(one Argument) bool { return slices.Contains(one.Options, head) })
		if i > 0 && strings.HasPrefix(head, "--") && !known && !slices.Contains(given, head) && names[k]().MatchString(strings.ReplaceAll(bare(head), "-", "_")) {
			given = append(given, head)
		}
	}
	return given
}

// likely drafts a knob that only a name suggests; nil if none or several do.
func (s *Analysis) likely(k strategy.Knob, doubt string) *FoundKnob {
	return s.only(k, s.named(k), doubt)
}

// only drafts a knob of the only candidate; nil if there are none or several.
func (s *Analysis) only(k strategy.Knob, candidates []Argument, doubt string) *FoundKnob {
	if len(candidates) != 1 {
		return nil
	}
	i := slices.IndexFunc(s.facts.Settings, func(o Argument) bool { return slices.Equal(o.Options, candidates[0].Options) })
	t := s.facts.setting(i)
	return &FoundKnob{Knob: k, Doubt: doubt, Why: []string{t.name() + " (" + t.where() + ")"}, target: t}
}

// reaching finds the target that reaches loaders; unknown is the reason why it is not known for
// one of them. what returns the value of a loader, of is its name, and both describes two
// targets.
func (s *Analysis) reaching(k strategy.Knob, loaders []loader, what func(loader) value, of, both string) (found *FoundKnob, unknown string) {
	for _, l := range loaders {
		t, why := s.facts.pure(s.known(what(l)))
		if why == "" {
			t.origin, why = s.origin(t), s.replaced(t)
		}
		switch {
		case why != "":
			if strings.HasPrefix(why, constantText) {
				why += s.where(l)
			}
			unknown = cmp.Or(unknown, fmt.Sprintf("the %s of %s (%s): %s", of, l.maker(), l.location, why))
		case found == nil:
			found = &FoundKnob{Knob: k, target: t, Why: []string{evidence(t, "reaches "+l.maker(), l.location)}, Doubt: s.doubtOf(k, t, l.Sliced)}
		case found.target.key != t.key:
			found.Doubt = fmt.Sprintf("%s and %s both %s (%s)", found.Name(), t.name(), both, l.location)
		}
	}
	return found, unknown
}

// microBatch is the batch of the loaders that training reads from.
func (s *Analysis) microBatch() *FoundKnob {
	const k = strategy.MicroBatchSize
	train := s.training()
	batches := slices.DeleteFunc(slices.Clone(train), func(l loader) bool { return l.Batch.none() || l.Batch.Const.value == 0.0 }) // whole batches come from elsewhere
	if own := slices.DeleteFunc(slices.Clone(batches), s.evaluates); len(own) > 0 {
		batches = own
	}
	found, unknown := s.reaching(k, batches, func(l loader) value { return s.forTraining(l.Batch) }, "batch size", "size batches of training")
	s.Reported = (found == nil || unknown != "") && s.reported(unknown)
	s.Unlike = len(s.facts.Split) > 0 || strings.Contains(unknown, " the constant ") || strings.Contains(unknown, computedText) || strings.HasSuffix(unknown, notOpened)
	if found == nil {
		doubt := cmp.Or(unknown, s.omitted, "no DataLoader was found that takes it")
		if draft := s.likely(k, doubt); draft != nil {
			return draft
		}
		if len(train) == 0 {
			doubt = ""
		}
		return s.miss(k, doubt)
	}
	found.Doubt = cmp.Or(unknown, found.Doubt)
	if len(s.facts.Split) > 0 && found.Doubt == "" {
		found.Doubt = fmt.Sprintf("Accelerate splits each batch among the ranks (%s)", s.facts.Split[0].location)
	}
	return found
}

// origin says where a key of a configuration has its value from, if not from the file that an argument names.
func (s *Analysis) origin(t target) string {
	if t.via == nil || len(t.path) == 0 {
		return ""
	}
	switch c := s.configuration(s.textOf(t.via), t.via); {
	case slices.ContainsFunc(s.argv, func(word string) bool {
		head, _, _ := strings.Cut(word, "=")
		return (t.pairs || t.dotted) && head == strings.Join(t.path, ".")
	}):
		return "given by the command"
	case c != nil && !c.extends() && c.at(t.path) == nil:
		return "a default of the code"
	}
	return ""
}

// evaluates reports whether the batch of a loader is a setting of the evaluation, whatever the loader's name is.
func (s *Analysis) evaluates(l loader) bool {
	t, why := s.facts.pure(s.known(l.Batch))
	return why == "" && t.evaluates()
}

// evaluates reports whether a setting is one of the evaluation, by its name and those of the parts that it is in.
func (t target) evaluates() bool {
	return evalWord().MatchString(t.word()) || slices.ContainsFunc(t.path, evalWord().MatchString)
}

// evidence formats one sentence.
func evidence(t target, how string, at location) string {
	if t.where() == "" {
		return fmt.Sprintf("%s %s (%s)", t.name(), how, at)
	}
	return fmt.Sprintf("%s (%s) %s (%s)", t.name(), t.where(), how, at)
}

// training are the loaders that training reads from.
func (s *Analysis) training() []loader {
	var train, unknown []loader
	trains := slices.ContainsFunc(s.facts.Loaders, func(l loader) bool { return l.Loop != "other" && l.role() != "eval" })
	for _, l := range s.facts.Loaders {
		if l.Loop == "other" && trains {
			continue // for a picture of some samples, or their mean
		}
		switch l.role() {
		case "train":
			train = append(train, l)
		case "":
			unknown = append(unknown, l)
		}
	}
	if len(train) == 0 {
		return unknown
	}
	for _, l := range unknown {
		// A loader with another batch than training's is not for training.
		if t, why := s.facts.pure(l.Batch); why == "" && !evalWord().MatchString(t.word()) {
			train = append(train, l)
		}
	}
	return train
}

// forTraining omits those of several values whose names belong to the evaluation.
func (s *Analysis) forTraining(v value) value {
	all := v.alternatives()
	if len(all) < 2 {
		return v
	}
	left := slices.DeleteFunc(slices.Clone(all), func(one value) bool {
		t, ok := s.facts.first(one)
		return ok && t.evaluates() || one.fraction()
	})
	if len(left) == 0 {
		return v
	}
	return value{Any: left}
}

// fraction reports whether a value is one and a half times another, as is common in evaluations.
func (v value) fraction() bool {
	return v.Op == "int" && len(v.Of) == 1 && v.Of[0].Op == "*" && v.Of[0].holds(func(part value) bool {
		n, number := part.Const.value.(float64)
		return number && n > 1 && n != float64(int64(n))
	})
}

// doubtOf is the reason why a target that reaches the right place may still not be the knob; anyName is
// set where its use shows what it is, whatever its name.
func (s *Analysis) doubtOf(k strategy.Knob, t target, anyName bool) string {
	for _, one := range t.settings {
		if why := one.countsAll(); why != "" && k == strategy.MicroBatchSize {
			return why
		}
		if why := one.whole(); why != "" {
			return why
		}
	}
	if !anyName && !t.speaks(k) {
		return fmt.Sprintf("%s is a name that gpurun does not know for a %s", t.name(), called[k])
	}
	if t.settings == nil && k == strategy.MicroBatchSize && ofSum().MatchString(t.word()) {
		return t.name() + " counts the samples of all GPUs, by its name"
	}
	return ""
}

// notRead begins the reason for a micro batch that is kept because the loss was not read.
const notRead = "whether smaller micro batches train the same is not known: "

// Unread is why only the settings of the script were read; empty: all was.
func (s *Analysis) Unread() string { return s.facts.Unread }

// equivalent refuses a micro batch if its change would change the training.
func (s *Analysis) equivalent(micro, accumulation *FoundKnob) {
	if micro.Doubt != "" {
		return
	}
	if s.facts.Unread != "" {
		micro.Refusal = notRead + s.facts.Unread
		return
	}
	why := s.unequal(accumulation, micro)
	plain, floor := strings.CutSuffix(why, bounded)
	if at, follows := s.rateFollows(micro.target, accumulation); follows && (why == "" || floor) {
		why = fmt.Sprintf("the learning rate is computed from it (%s), and would change with it", at)
	} else if floor && accumulation == nil {
		why = plain + boundedElsewhere
	}
	micro.Refusal = why
}

// rateFollows reports whether a learning rate is computed from the micro batch, and not from the
// accumulated batch.
func (s *Analysis) rateFollows(micro target, accumulation *FoundKnob) (at location, follows bool) {
	for _, r := range s.facts.Rates {
		product := r.Value.holds(func(v value) bool {
			return (v.Op == "*" || v.Op == "/" || v.Op == "**") && slices.ContainsFunc(v.Of, func(part value) bool { return s.facts.uses(part, micro) })
		})
		switch {
		case !product:
		case accumulation != nil && !accumulation.Derived && s.facts.uses(r.Value, accumulation.target):
			return location{}, false
		case !follows:
			at, follows = r.location, true
		}
	}
	return at, follows
}

package strategy

// A Call is a keyword argument of a call in the job's code that the probe changes as the
// process makes the call.
type Call struct {
	// Name is the whole name of what is called: "transformers.TrainingArguments". What
	// extends it counts, too.
	Name    string `json:"call"`
	Keyword string `json:"keyword"`
	// Knob is what the keyword stands for; empty for none.
	Knob Knob `json:"knob,omitempty"`
	// Where are keywords that tell the calls that are meant from others of the name; nil:
	// all are.
	Where map[string]any `json:"where,omitempty"`
	// From is what the source gives, a number, a word or a truth value; nil: unknown. A
	// call that gives another value is left alone.
	From any `json:"from"`
	To   any `json:"to"`
}

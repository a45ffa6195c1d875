package model

// instance is a size of a model, and which faults it has.
type instance struct {
	Name        string   `json:"name"`
	About       string   `json:"about"`
	File        string   `json:"file"`
	Definitions []string `json:"definitions"` // of the preprocessor
	Live        bool     `json:"live"`        // it is asked whether who waits is served at last, beside what is asserted
	States      int      `json:"states"`
	Depth       int      `json:"depth"`
	Seconds     float64  `json:"seconds"`
	Broken      string   `json:"broken"` // the property that does not hold. "": all do
}

// mistake leaves out a rule of the code.
type mistake struct {
	Name     string `json:"name"` // behind MISTAKE_
	Rule     string `json:"rule"`
	Where    string `json:"where"` // the file that has the rule
	In       string `json:"in"`    // the instance
	By       string `json:"by"`    // the property that has to break
	CaughtBy string `json:"caught_by"`
}

package config

import (
	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/nametext"
)

// Outage is the policy while the backend is unreachable.
type Outage string

// The outage policies: see wllock.WithOutage.
const (
	FailClosed Outage = "closed" // callers are refused
	LocalOnly  Outage = "local"  // callers exclude each other within the process
)

// Decode implements envconfig.Decoder.
func (o *Outage) Decode(text string) error {
	if wrong := Outage(text).fault(); wrong != "" {
		return fault(wrong)
	}
	*o = Outage(text)
	return nil
}

func (o Outage) fault() string {
	switch o {
	case FailClosed, LocalOnly:
		return ""
	}
	return nametext.Quote(string(o)) + " is not an outage policy"
}

func (o Outage) option() wllock.Option {
	if o == LocalOnly {
		return wllock.WithOutage(wllock.LocalOnly)
	}
	return wllock.WithOutage(wllock.FailClosed)
}

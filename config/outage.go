package config

import (
	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/nametext"
)

// Outage says what happens while the backend is away.
type Outage string

// The two ways; see wllock.WithOutage.
const (
	FailClosed Outage = "closed" // callers are refused
	LocalOnly  Outage = "local"  // callers exclude each other within the process
)

// Decode is how envconfig sets the Outage.
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
	return nametext.Quote(string(o)) + " is no way to handle an outage"
}

func (o Outage) option() wllock.Option {
	if o == LocalOnly {
		return wllock.WithOutage(wllock.LocalOnly)
	}
	return wllock.WithOutage(wllock.FailClosed)
}

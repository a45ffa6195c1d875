package config

// hidden replaces secrets.
const hidden = "xxxxx"

// Secret is a text that is never shown. The zero Secret is empty.
type Secret struct {
	// text is a pointer because fmt prints unexported fields without calling methods, for example those of a Config in an
	// unexported field of another struct: then it prints an address.
	text *string
}

// NewSecret returns a Secret with this text.
func NewSecret(text string) Secret { return Secret{text: &text} }

// Reveal returns the text.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// String returns "xxxxx", or nothing if the Secret is empty.
func (s Secret) String() string {
	if s.Reveal() == "" {
		return ""
	}
	return hidden
}

// GoString returns what String returns, for %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalText returns what String returns, for encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Decode implements envconfig.Decoder.
func (s *Secret) Decode(text string) error {
	*s = NewSecret(text)
	return nil
}

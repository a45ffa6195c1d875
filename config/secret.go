package config

// hidden stands where a secret would.
const hidden = "xxxxx"

// Secret is a text that is used and not shown. The zero Secret is empty.
type Secret struct {
	// text is behind a pointer because fmt prints unexported fields without asking any method, for instance of a Config
	// in an unexported field of something else: then it finds an address.
	text *string
}

// NewSecret returns a Secret that holds text.
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

// GoString is String for %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalText is String for encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Decode is how envconfig sets the Secret.
func (s *Secret) Decode(text string) error {
	*s = NewSecret(text)
	return nil
}

package config

import (
	"fmt"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/passfile"
)

// KeyRedaction returns the redaction that Open gives the Locker, for tools that print keys as services log them: [wllock.HashKeys] of the
// secret, or nil if no secret is set. It reads the file of the secret.
func (c Config) KeyRedaction() (redact func(key string) string, err error) {
	secret, err := c.keySecret()
	if err != nil {
		return nil, fmt.Errorf("wllock: WLLOCK_KEY_SECRET_FILE %w", err)
	}
	return wllock.HashKeys([]byte(secret)), nil
}

// keySecret returns the secret, "" if none is set. It is read as a password is.
func (c Config) keySecret() (string, error) {
	if c.KeySecretFile != "" {
		return readPassword(c.KeySecretFile)
	}
	return passfile.Clean(c.KeySecret.Reveal())
}

const shortKeySecret = "has less than 16 bytes"

func (c Config) keySecretFault() string {
	switch secret, err := passfile.Clean(c.KeySecret.Reveal()); {
	case err != nil:
		return err.Error()
	case secret != "" && wllock.HashKeys([]byte(secret)) == nil:
		return shortKeySecret
	}
	return ""
}

func (c Config) keySecretFileFault() string {
	if c.KeySecretFile == "" {
		return ""
	}
	if secret, _ := passfile.Clean(c.KeySecret.Reveal()); secret != "" {
		return "is set, but WLLOCK_KEY_SECRET is set too"
	}
	secret, err := readPassword(c.KeySecretFile)
	switch {
	case err != nil:
		return err.Error()
	case wllock.HashKeys([]byte(secret)) == nil:
		return "names a file that " + shortKeySecret
	}
	return ""
}

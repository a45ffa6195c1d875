// Package passfile reads passwords from files and settings by one rule. What editors, shells and secret stores add is taken
// off. What cannot be one password is refused, so that no server answers "wrong password" to an invisible character.
package passfile

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// ErrNotOneLine refuses a text that is several lines, or UTF-16. It continues a sentence about the text, and shows none of it.
var ErrNotOneLine = errors.New("is not one line of UTF-8")

// ErrNotRegular refuses what is no regular file. A pipe can be read once only, and opening it may take for ever.
var ErrNotRegular = errors.New("is a pipe or a device, which cannot be read again for each connection")

// byteOrderMark is what some editors begin a file of UTF-8 with.
const byteOrderMark = "\ufeff"

// Clean returns a password without a byte order mark before it, and without spaces, tabs and line ends behind it. Other white
// space at the start belongs to the password.
func Clean(text string) (string, error) {
	password := strings.TrimRight(strings.TrimPrefix(text, byteOrderMark), " \t\r\n")
	if strings.ContainsAny(password, "\r\n\x00") { // a NUL stands beside each letter of UTF-16
		return "", ErrNotOneLine
	}
	return password, nil
}

// Content returns the content of a regular file. Its errors show the path.
func Content(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return nil, fmt.Errorf("%s %w", path, ErrNotRegular)
	}
	return os.ReadFile(path)
}

// Read is Clean for the content of a file. Its errors show the path.
func Read(path string) (string, error) {
	content, err := Content(path)
	if err != nil {
		return "", err
	}
	password, err := Clean(string(content))
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return password, nil
}
